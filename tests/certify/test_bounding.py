"""Bounds hold, are exact where they can be, and say what they do not cover."""

import enumeration
import numpy as np
import pytest
import torch
from escapes import any_escape, escapes
from tiny_nets import NETS, images, tiny
from torch import nn

from rood.certify import METHODS, Certifier, bounds
from rood.detectors import (
    KNN,
    MSP,
    ODIN,
    Energy,
    Ensemble,
    Head,
    Mahalanobis,
    MaxLogit,
    Mirrored,
    ReAct,
    ViM,
)
from rood.errors import CapabilityError, InputError
from rood.models.backbones import create
from rood.models.scored import scored
from rood.models.wrap import logits_only, wrap
from rood.seeds import generator
from rood.testing._support import as_in_production
from rood.threat import L2, Linf


@pytest.mark.parametrize("name", NETS)
def test_no_point_leaves_the_bounds(name):
    assert any_escape(tiny(name), images(3)) == 0.0


@pytest.mark.parametrize("make", [KNN, Mahalanobis, ViM, ReAct, Ensemble, Mirrored])
@pytest.mark.parametrize("method", ["ibp", "crown"])
def test_no_point_leaves_the_bounds_of_scores_of_features(make, method):
    model, x = tiny("strides"), images(3)
    fit = [(images(40, seed=1), torch.arange(40) % 3)]
    if make in (Ensemble, Mirrored):
        d = Ensemble([MSP(model), KNN(model, k=3)], scale="normal")
        d = (Mirrored(d) if make is Mirrored else d).fit(fit)
        d.fit(fit)
    else:
        d = (make(model, k=3) if make is KNN else make(model)).fit(fit)
    assert max(escapes(d, x, t, method) for t in (Linf(0.05), L2(0.4))) == 0.0


@pytest.mark.parametrize("threat", [Linf(0.03), L2(0.2)])
@pytest.mark.parametrize("method", METHODS)
def test_a_linear_network_is_exact(threat, method):
    """w.x + b moves by eps |w|_1, or eps |w|_2, where no pixel is near the border."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double()
    model = scored(wrap(net, mean=(0.4, 0.5), std=(0.3, 0.25)))
    x = 0.3 + 0.4 * images(4)
    weight = model.scalar_head.weight[0] / model.std.expand(1, 2, 6, 6).flatten()
    reach = threat.eps * weight.norm(p=1 if threat.norm == "linf" else 2)
    head = Head(model)
    low, high = bounds(head, x, threat, method)
    torch.testing.assert_close(low, head.score(x) - reach, atol=1e-9, rtol=0)
    torch.testing.assert_close(high, head.score(x) + reach, atol=1e-9, rtol=0)


def test_pixels_beyond_the_box_are_not_counted():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)).double()
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[-1.0, 2, 3, -4], [0, 0, 0, 0]]))
    score = MaxLogit(wrap(net))  # = -max(w.x, 0)
    x = torch.zeros(1, 1, 2, 2).double()
    low, high = bounds(score, x, Linf(0.5), "crown")
    assert low.item() == pytest.approx(-(2 + 3) * 0.5)
    low, high = bounds(score, x, L2(0.5), "crown")
    # an L2 region cut to non-negative pixels: the negative weights cannot help
    assert low.item() == pytest.approx(-np.hypot(2, 3) * 0.5, rel=1e-3)
    assert high.item() >= 0.0


@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_the_exact_range_of_tiny_networks(seed):
    found = {method: enumeration.gap(seed, method) for method in METHODS}
    assert max(outside for outside, _ in found.values()) <= 1e-9
    assert found["alpha"][1] <= found["crown"][1] <= found["ibp"][1]
    assert found["alpha"][1] < 1.35


@pytest.mark.parametrize("name", NETS)
def test_tighter_methods_are_tighter(name):
    msp, x = MSP(tiny(name)), images(3)
    width = {m: (b := bounds(msp, x, Linf(0.1), m)).high - b.low for m in METHODS}
    for tight, loose in (("alpha", "crown"), ("crown", "ibp"), ("crown-ibp", "ibp")):
        assert bool((width[tight] <= width[loose] * (1 + 1e-9)).all()), (tight, loose)
    assert width["crown"].mean() < width["crown-ibp"].mean()
    assert width["crown"].mean() < 0.8 * width["ibp"].mean()


def test_bounds_do_not_depend_on_the_batch():
    msp, x = MSP(tiny("residual")), images(5)
    for method in ("ibp", "crown-ibp", "crown"):
        together = bounds(msp, x, Linf(0.05), method)
        alone = [bounds(msp, one, Linf(0.05), method) for one in x.split(1)]
        for end in ("low", "high"):
            each = torch.cat([getattr(b, end) for b in alone])
            torch.testing.assert_close(getattr(together, end), each, atol=1e-9, rtol=1e-9)


def test_a_threat_of_zero_gives_the_score():
    msp, x = MSP(tiny("pools")), images(3)
    for method in METHODS:
        low, high = bounds(msp, x, Linf(0.0), method)
        torch.testing.assert_close(low, msp.score(x), atol=1e-9, rtol=0)
        torch.testing.assert_close(high, msp.score(x), atol=1e-9, rtol=0)


def test_float32_scores_lie_within_bounds_that_are_exact():
    """The network rounds in float32; a threat of 0 leaves nothing but the stated margin."""
    model = wrap(create("small_cnn", classes=10, channels=1, width=8), mean=(0.1,), std=(0.3,))
    x = torch.rand(64, 1, 28, 28, generator=generator(0, "x"))
    for d in (MSP(model), Energy(model), MaxLogit(model)):
        low, high = bounds(d, x, Linf(0.0), "ibp")
        assert bool(((low <= d.score(x)) & (d.score(x) <= high)).all())
        assert float((high - low).max()) < 5e-3


def test_no_images_have_no_bounds():
    low, high = bounds(MSP(tiny("mlp")), images(0), Linf(0.1))
    assert low.shape == high.shape == (0,)


def test_nothing_is_changed():
    model = tiny("residual")
    msp, x = MSP(model), images(2)
    before = {k: v.clone() for k, v in model.state_dict().items()}, x.clone(), msp.score(x)
    Certifier(msp, Linf(0.1), "alpha")(x)
    assert all(torch.equal(v, before[0][k]) for k, v in model.state_dict().items())
    assert torch.equal(x, before[1])
    assert torch.equal(msp.score(x), before[2])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.net.modules())


def test_what_cannot_be_bounded_says_so():
    model, x = tiny("mlp"), images(2)
    with pytest.raises(CapabilityError, match="can be bounded, got ODIN"):
        bounds(ODIN(model), x, Linf(0.1))
    with as_in_production(), pytest.raises(InputError, match="expected a method among ibp"):
        bounds(MSP(model), x, Linf(0.1), "magic")


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.Softplus(), "softplus in 1 .Softplus"),
        (nn.GroupNorm(1, 2), "group_norm"),
        (nn.Upsample(scale_factor=2), "interpolate"),
        (nn.Conv2d(2, 2, 3, padding="same"), "padding 'same'"),
        (nn.ZeroPad2d(1), None),
        (nn.ReflectionPad2d(1), "padding by other things than zeros"),
        (nn.BatchNorm2d(2, track_running_stats=False), "statistics of the batch"),
    ],
)
def test_a_layer_that_is_not_covered_is_named(layer, named):
    first = nn.Conv2d(2, 2, 1)
    net = nn.Sequential(first, layer, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    msp, x = MSP(wrap(net.double())), images(2)
    if named is None:
        bounds(msp, x, Linf(0.1))
        return
    with pytest.raises(CapabilityError, match=named):
        bounds(msp, x, Linf(0.1))


def test_a_vision_transformer_is_one_sentence():
    net = create("vit", classes=3, channels=2, size=8, patch=4, width=12, depth=1, heads=1)
    with pytest.raises(CapabilityError, match="expected layers that certificates cover, got"):
        bounds(MSP(wrap(net.double())), torch.rand(2, 2, 8, 8).double(), Linf(0.1))


def test_a_network_that_gives_logits_only_is_covered():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.ReLU())
            self.last = nn.Linear(5, 3)

        def forward(self, x):
            return 2 * self.last(self.layers(x))

    model = logits_only(Plain().double(), 3)
    assert any_escape(model, images(2)) == 0.0
