"""Each layer: its interval and its lines hold at every point, with every rounding."""

from fractions import Fraction

import pytest
import torch
from escapes import of_layer
from tiny_nets import NETS, images, tiny
from torch import nn

from rood.certify.forward import intervals
from rood.certify.graph import trace
from rood.certify.layers import by_name, registry
from rood.certify.layers.gelu import GELU
from rood.certify.layers.linear import Linear
from rood.certify.layers.relu import ReLU
from rood.certify.layers.silu import SiLU
from rood.certify.region import Region
from rood.numerics.box import Box
from rood.seeds import generator
from rood.threat import Linf

CURVES = [ReLU(), ReLU(0.2), SiLU(), GELU()]


def spans():
    """Intervals of every kind: tiny, wide, on one side, around 0, and of no width."""
    ends = torch.tensor([-40.0, -6, -2.5, -1.3, -0.7, -1e-3, -1e-9, 0, 1e-9, 0.5, 1.4, 2.4, 7, 90])
    low, high = torch.meshgrid(ends.double(), ends.double(), indexing="ij")
    keep = low <= high
    return Box(low[keep][None], high[keep][None])


@pytest.mark.parametrize("layer", CURVES, ids=str)
def test_lines_of_a_curve_hold_on_every_interval(layer):
    assert of_layer(layer, spans()) == 0.0


@pytest.mark.parametrize("layer", CURVES, ids=str)
def test_lines_touch_the_curve(layer):
    """A line that nothing touches could be moved closer: each gets within 1e-6 of the curve."""
    low, high = spans()
    lines = layer.lines(Box(low, high))
    grid = low + torch.linspace(0, 1, 20001).double()[:, None] * (high - low)
    y = layer.value(grid)
    below = (y - lines.low_slope * grid - lines.low_offset).amin(dim=0)
    above = (lines.high_slope * grid + lines.high_offset - y).amin(dim=0)
    assert float(below.max()) < 1e-4
    assert float(above.max()) < 1e-4


@pytest.mark.parametrize("layer", [SiLU(), GELU()], ids=str)
def test_the_bends_of_a_smooth_curve_are_where_they_are_said_to_be(layer):
    """The slope grows between -c and c and falls beyond; the least value is at `bottom`."""
    near = torch.linspace(-layer.bend, layer.bend, 1001).double()
    assert bool((layer.slope(near).diff() > 0).all())
    for beyond in (torch.linspace(layer.bend, 30, 1001), torch.linspace(-30, -layer.bend, 1001)):
        assert bool((layer.slope(beyond.double()).diff() <= 1e-15).all())
    bottom = torch.tensor(layer.bottom, dtype=torch.float64)
    assert float(layer.slope(bottom)) == pytest.approx(0, abs=1e-14)
    assert layer.least <= float(layer.value(bottom)) + 1e-16
    x = torch.linspace(-4, 4, 4001).double().requires_grad_()
    (slope,) = torch.autograd.grad(layer.value(x).sum(), x)
    torch.testing.assert_close(layer.slope(x), slope)


def boxes_of(name, eps=0.1):
    """The boxes of every node of a tiny network, around one image."""
    graph = trace(tiny(name), (2, 6, 6))
    x = images(1)
    return graph, intervals(graph, Region.around(x, Linf(eps), torch.float64))


@pytest.mark.parametrize("name", NETS)
def test_every_layer_of_a_network_holds_on_its_boxes(name):
    graph, found = boxes_of(name)
    for node in graph.nodes[1:]:
        boxes = [found.boxes[i] for i in node.inputs]
        assert of_layer(node.layer, *boxes, n=60) == 0.0, node.where


def test_the_tiny_networks_have_every_layer():
    seen = {type(n.layer) for name in NETS for n in trace(tiny(name), (2, 6, 6)).nodes}
    assert set(map(registry.cls, registry.files)) <= seen
    assert set(by_name().values()) <= seen


@pytest.mark.parametrize("name", NETS)
def test_the_adjoint_of_an_affine_layer_is_that_of_autograd(name):
    graph, found = boxes_of(name)
    for node in graph.nodes[1:]:
        if not node.layer.affine:
            continue
        x = [found.boxes[i].centre.requires_grad_() for i in node.inputs]
        y = node.layer.value(*x)
        a = torch.randn(y.shape, generator=generator(0, "adjoint")).double()
        want = torch.autograd.grad(y, x, a)
        for got, wanted in zip(node.layer.adjoint(a), want, strict=True):
            torch.testing.assert_close(got, wanted)


def test_rounding_is_covered_to_the_last_digit():
    """Sums whose rounding errors matter, in float32, against exact fractions."""
    g = generator(0, "rounding")
    for draw in range(40):
        weight = torch.randn(1, 200, generator=g) * 10 ** torch.randint(-4, 5, (1, 200)).float()
        low = torch.randn(1, 200, generator=g)
        high = low + torch.rand(1, 200, generator=g) * 10.0 ** -(draw % 8)
        layer = Linear(weight, torch.randn(1, generator=g))
        found = layer.over(Box(low, high))
        shift, parts = Fraction(layer.shift.item()), []
        for end in (min, max):
            terms = zip(weight[0].tolist(), low[0].tolist(), high[0].tolist(), strict=True)
            exact = [(Fraction(w), Fraction(a), Fraction(b)) for w, a, b in terms]
            parts.append(shift + sum(end(w * a, w * b) for w, a, b in exact))
        assert Fraction(found.low.item()) <= parts[0]
        assert Fraction(found.high.item()) >= parts[1]


def test_a_chord_lies_above_both_ends_to_the_last_digit():
    g = generator(1, "rounding")
    low = -torch.rand(1, 2000, generator=g) * 10 ** torch.randint(-6, 6, (1, 2000)).float()
    high = torch.rand(1, 2000, generator=g) * 10 ** torch.randint(-6, 6, (1, 2000)).float()
    lines = ReLU().lines(Box(low, high))
    slope, offset = (v[0].tolist() for v in (lines.high_slope, lines.high_offset))
    for k, t, a, b in zip(slope, offset, low[0].tolist(), high[0].tolist(), strict=True):
        assert Fraction(k) * Fraction(a) + Fraction(t) >= 0
        assert Fraction(k) * Fraction(b) + Fraction(t) >= Fraction(b)


@pytest.mark.parametrize(
    "pool",
    [
        nn.AdaptiveAvgPool2d((3, 4)),
        nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d((2, 3), (1, 2)),
    ],
    ids=str,
)
def test_average_pooling_is_a_product_of_two_matrices(pool):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = pool
            self.head = nn.LazyLinear(3)

        def forward(self, x):
            return self.head(self.pool(x).flatten(1))

    net = Net()
    net(torch.rand(1, 2, 7, 8))
    from rood.models.wrap import wrap

    graph = trace(wrap(net.double()), (2, 7, 8))
    x = torch.rand(3, 2, 7, 8, generator=generator(0, "x")).double()
    place = next(i for i, n in enumerate(graph.nodes) if type(n.layer).__name__ == "AveragePool")
    torch.testing.assert_close(graph.values(x)[place], pool(x))
