"""Coefficients in windows beside those of whole maps."""

import pytest
import torch
from tiny_nets import images, tiny

from rood.certify import backward
from rood.certify.graph import trace
from rood.certify.layers.convolution import Convolution
from rood.certify.region import Region
from rood.numerics.window import Window
from rood.seeds import generator
from rood.threat import L2, Linf


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed, "window")).double()


def entries(shape, n=40):
    """Some entries of a map, the corners among them."""
    size = torch.Size(shape).numel()
    some = torch.randint(0, size, (n,), generator=generator(0, "entries"))
    return torch.cat([some, torch.tensor([0, shape[2] - 1, size - shape[2], size - 1])])


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [((3, 3), 1, 1, 1), ((4, 4), 2, 1, 1), ((1, 3), 2, 0, 1), ((2, 2), 1, 2, 3), ((5, 2), 3, 1, 2)],
)
def test_a_convolution_moves_a_window_as_it_moves_the_map(kernel, stride, padding, dilation):
    layer = Convolution(
        drawn(6, 3, *kernel),
        None,
        (stride, stride),
        (padding, padding),
        (dilation, dilation),
        1,
        (11, 12),
    )
    shape = tuple(layer.linear(drawn(1, 3, 11, 12)).shape[1:])
    which = entries(shape)
    factors = drawn(len(which))
    window = Window.of_entries(factors, which, shape)
    whole = window.whole(shape)
    one = torch.zeros(len(which), whole[0].numel()).double()
    one[torch.arange(len(which)), which] = factors
    assert torch.equal(whole.flatten(1), one)
    for _ in range(2 if kernel == (3, 3) else 1):  # twice: of a window larger than one entry
        moved, wanted = layer.adjoint_window(window), layer.adjoint(whole)[0]
        torch.testing.assert_close(moved.whole((3, 11, 12)), wanted, rtol=1e-12, atol=1e-12)
        doubled = torch.cat([moved.a, moved.a], dim=3)
        window, whole = moved._replace(a=doubled), torch.cat([wanted, wanted], dim=1)


def test_values_under_a_window_are_those_of_its_owner():
    v, owner = drawn(2, 3, 5, 6), torch.tensor([1, 0, 1])
    window = Window(drawn(3, 2, 2, 3, seed=1), torch.tensor([-1, 1, 4]), torch.tensor([2, 5, 0]))
    cut = window.cut((5, 6))
    wanted = (cut.whole((3, 5, 6)) * v[owner]).flatten(1).sum(dim=1)
    found = (cut.a * cut.under(v, owner)).flatten(1).sum(dim=1)
    torch.testing.assert_close(found, wanted)
    total = (cut.whole((3, 5, 6)).abs() * v.abs()[owner]).flatten(1).sum(dim=1)
    assert bool((cut.at_most(v.abs(), owner) >= total).all())


@pytest.mark.parametrize("threat", [Linf(0.03), L2(0.2)])
@pytest.mark.parametrize("name", ["strides", "residual"])
def test_bounds_of_entries_are_those_by_whole_maps(name, threat):
    """For every map of a network, each entry up and down, for two images at once."""
    model, x = tiny(name), images(2)
    graph = trace(model, tuple(x.shape[1:]))
    found = backward.crown(graph, Region.around(x, threat, torch.float64))
    maps = [at for at, node in enumerate(graph.nodes) if len(node.shape) == 3 and at]
    assert len(maps) > 3
    for at in maps:
        shape = graph.nodes[at].shape
        which = entries(shape, 8)
        owner = torch.arange(len(which)) % 2
        factors = drawn(len(which), seed=at)
        a = Window.of_entries(factors, which, shape).whole(shape)
        wanted = backward.least(found, at, a, owner)
        given = backward.least_entries(found, at, factors, which, owner)
        torch.testing.assert_close(given, wanted, rtol=1e-9, atol=1e-9)
