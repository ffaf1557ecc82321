"""Randomness by purpose: the same on every machine, in every batch and order."""

import pytest
import torch
from scipy.stats import kstest

from rood.seeds import Noise, generator, row_keys


def images(n=6, seed=0, size=8):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def noise(x, seed=0):
    return Noise(x, torch.Generator().manual_seed(seed))


def test_a_generator_depends_on_its_seed_and_purpose_alone():
    before = torch.get_rng_state()
    draw = lambda *key: torch.rand(4, generator=generator(*key)).tolist()
    assert draw(0, "pgd", 3) == draw(0, "pgd", 3)
    assert len({tuple(draw(*k)) for k in [(0, "a"), (0, "b"), (1, "a"), (0, "a", 1)]}) == 4
    assert torch.equal(before, torch.get_rng_state())


def test_noise_is_uniform_and_normal_noise_is_normal():
    n = noise(images(16, size=16))
    u = torch.cat([n.uniform().flatten() for _ in range(3)])
    assert kstest(u, "uniform").pvalue > 1e-3
    assert 0 <= u.min() <= u.max() < 1
    assert kstest(torch.cat([n.normal().flatten() for _ in range(3)]), "norm").pvalue > 1e-3


def test_noise_of_different_images_and_of_different_draws_is_unrelated():
    n = noise(images(6, size=16))
    draws = torch.cat([n.uniform().flatten(1) for _ in range(2)])  # (12, 768)
    off = torch.corrcoef(draws) - torch.eye(12)
    assert off.abs().max() < 0.15  # 4 standard deviations of 768 numbers


def test_noise_of_an_image_does_not_depend_on_its_batch():
    x = images()
    whole = noise(x).uniform()
    assert torch.equal(noise(x[2:4]).uniform(), whole[2:4])
    assert torch.equal(noise(x.flip(0)).uniform().flip(0), whole)
    assert not torch.equal(noise(x, seed=1).uniform(), whole)


def test_selected_noise_goes_on_where_the_whole_would_have():
    x, index = images(), torch.tensor([4, 1])
    whole, part = noise(x), noise(x)
    whole.uniform(), part.uniform()
    assert torch.equal(part.select(index).uniform(), whole.uniform()[index])


def test_selecting_does_not_disturb_the_noise_that_was_selected_from():
    a, b = noise(images()), noise(images())
    a.select(torch.tensor([0])).uniform()
    assert torch.equal(a.uniform(), b.uniform())


def test_noise_is_the_same_on_every_machine():
    x = torch.arange(4.0).view(1, 1, 2, 2) / 4
    assert row_keys(x).tolist() == [7214831680253085301]
    torch.testing.assert_close(
        noise(x).uniform().flatten(), torch.tensor([0.84735614, 0.06158025, 0.35454664, 0.71499801])
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_noise_is_the_same_on_cuda():
    x = images()
    assert torch.equal(row_keys(x.cuda()).cpu(), row_keys(x))
    assert torch.equal(noise(x.cuda()).uniform().cpu(), noise(x).uniform())


def test_noise_keeps_the_dtype_and_the_values_of_float32():
    x = images()
    wide = noise(x.double()).uniform()
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), noise(x).uniform())


def test_a_key_sees_every_pixel_and_its_place():
    x = images(1)
    other = x.clone()
    other[0, 2, 7, 7] += 1e-6
    assert len({int(row_keys(v)) for v in (x, other, x.flip(3), x.transpose(2, 3))}) == 4
