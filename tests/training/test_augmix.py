"""AugMix, each of its changes by itself and all of it against its formula."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toy_training import drawn

from rood.data.base import ImageSet
from rood.models import backbones
from rood.models.wrap import wrap
from rood.training import augmix
from rood.training.feed import Feed
from rood.training.loop import accuracy_of, train
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.settings import Augment, Settings


def toy(n: int = 90, seed: int = 0) -> ImageSet:
    """Three classes: bright at the top, in the middle, at the bottom."""
    y = torch.arange(n) % 3
    x = torch.randint(0, 80, (n, 1, 8, 8), generator=drawn(seed))
    for i, label in enumerate(y.tolist()):
        x[i, 0, 3 * label : 3 * label + 2] += 150
    return ImageSet(name="toy", images=x.to(torch.uint8), labels=y, classes=("a", "b", "c"))


def one_change(x: Tensor, kind: int, strength: float, side: float = 1.0) -> Tensor:
    n = len(x)
    full = lambda v: torch.full((n,), float(v))
    return augmix.change(x, full(kind), full(strength), full(side))


def pictures(n: int = 4, side: int = 9) -> Tensor:
    return torch.rand(n, 3, side, side, generator=drawn(5))


def test_the_pointwise_changes_are_those_of_their_names() -> None:
    x = pictures()
    stretched = one_change(x, augmix.AUTOCONTRAST, 0.3)
    for before, after in zip(x.flatten(0, 1), stretched.flatten(0, 1), strict=True):
        expected = (before - before.min()) / (before.max() - before.min())
        torch.testing.assert_close(after, expected)
    solarized = one_change(x, augmix.SOLARIZE, 0.3)
    torch.testing.assert_close(solarized, torch.where(x >= 0.7, 1 - x, x))
    for strength, bits in ((0.1, 4), (0.3, 3), (0.6, 2), (1.0, 1)):
        found = 255 * one_change(x, augmix.POSTERIZE, strength)
        mask = 0xFF << (8 - bits) & 0xFF
        expected = [int(v) & mask for v in (255 * x).round().flatten().tolist()]
        assert found.round().flatten().tolist() == expected


def test_the_movements_are_those_of_their_names() -> None:
    x = pictures()
    right = one_change(x, augmix.TRANSLATE_X, 1.0, -1.0)  # a third of 9 pixels
    torch.testing.assert_close(right[..., 3:], x[..., :-3], atol=1e-5, rtol=0)
    assert right[..., :3].abs().max() < 1e-5
    up = one_change(x, augmix.TRANSLATE_Y, 1.0)
    torch.testing.assert_close(up[:, :, :-3], x[:, :, 3:], atol=1e-5, rtol=0)
    straight = torch.zeros(1, 3, 9, 9)
    straight[..., 4] = 1  # a line from top to bottom
    for kind in (augmix.ROTATE, augmix.SHEAR_X):
        leant = one_change(straight, kind, 1.0)[0, 0]
        centres = (leant * torch.arange(9.0)).sum(dim=1) / leant.sum(dim=1)
        lean = math.tan(math.pi / 6) if kind == augmix.ROTATE else 0.3
        assert abs(centres[6] - centres[2]).item() / 4 == pytest.approx(lean, abs=0.05)
        mirrored = one_change(straight, kind, 1.0, -1.0)[0, 0]
        torch.testing.assert_close(mirrored, leant.flip(1), atol=1e-5, rtol=0)
    turned = one_change(x, augmix.ROTATE, 1.0).transpose(2, 3)
    back = one_change(x.transpose(2, 3), augmix.ROTATE, 1.0, -1.0)
    torch.testing.assert_close(turned, back, atol=1e-5, rtol=0)
    down = one_change(x.transpose(2, 3), augmix.SHEAR_Y, 1.0).transpose(2, 3)
    torch.testing.assert_close(down, one_change(x, augmix.SHEAR_X, 1.0), atol=1e-5, rtol=0)


def test_no_strength_changes_next_to_nothing() -> None:
    x = pictures()
    for kind in (augmix.SOLARIZE, *range(augmix.ROTATE, augmix.CHANGES)):
        torch.testing.assert_close(one_change(x, kind, 0.0), x, atol=1e-5, rtol=0)


def test_an_image_is_mixed_by_its_own_draws_alone() -> None:
    x, u = pictures(12), torch.rand(12, augmix.DRAWS, generator=drawn(6))
    found = augmix.mixed(x, 3.0, u)
    assert found.min() >= 0
    assert found.max() <= 1
    for i in range(12):
        alone = augmix.mixed(x[i : i + 1], 3.0, u[i : i + 1])
        torch.testing.assert_close(found[i : i + 1], alone, atol=1e-6, rtol=0)
    assert ((found - x).abs().flatten(1).amax(dim=1) > 0.05).sum() > 6
    near = (augmix.mixed(x, 1.0, u) - x).abs().mean()
    assert near < (found - x).abs().mean() < (augmix.mixed(x, 10.0, u) - x).abs().mean()


def test_the_mixture_is_the_formula_written_out() -> None:
    """The draws by hand: m, three weights, three depths, then kind, strength and side of each."""
    x = pictures(1)
    u = torch.rand(1, augmix.DRAWS, generator=drawn(7))
    m, *rest = u[0].tolist()
    shares = [-math.log(1 - v) for v in rest[:3]]
    chains = torch.zeros_like(x)
    for i in range(3):
        at = x
        for j in range(1 + int(3 * rest[3 + i])):
            kind, strength, side = rest[6 + 9 * i + 3 * j : 9 + 9 * i + 3 * j]
            level = (0.1 + strength * (3 - 0.1)) / 10
            at = one_change(at, int(8 * kind), level, -1.0 if side < 0.5 else 1.0)
        chains = chains + shares[i] / sum(shares) * at
    torch.testing.assert_close(augmix.mixed(x, 3.0, u), m * x + (1 - m) * chains)


def test_the_feed_mixes_images_and_outliers_anew_in_every_epoch() -> None:
    settings = Settings(batch_size=30, augment=Augment(shift=1, flip=True, augmix=3.0))
    source = Feed(toy(), toy(40, 3), settings, torch.device("cpu"))
    plain = replace(settings, augment=Augment(shift=1, flip=True))
    without = Feed(toy(), toy(40, 3), plain, torch.device("cpu"))
    for place in (0, 2):
        given = [f.batch(1, 0)[place] for f in (source, source, without)]
        assert torch.equal(given[0], given[1])
        assert not torch.equal(given[0], given[2])
        assert given[0].shape == given[2].shape
        assert given[0].dtype == torch.float32
    assert torch.equal(source.batch(1, 0).y, without.batch(1, 0).y)


def test_a_network_learns_from_mixed_images() -> None:
    net = backbones.create("small_cnn", classes=3, channels=1, width=4, features=8)
    model = wrap(net)
    settings = Settings(epochs=8, batch_size=15, lr=0.1, augment=Augment(augmix=3.0))
    list(train(model, CrossEntropy(), toy(), settings=settings))
    assert accuracy_of(model, toy(30, 9)) > 0.9
