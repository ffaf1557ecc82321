"""Certified metrics lie below attacked ones, which lie below clean ones."""

import numpy as np
import pytest
import torch
from escapes import climbed
from tiny_nets import images, tiny
from torch import nn

from rood.certify import bounds, certified, radius
from rood.detectors import MSP, Head
from rood.errors import InputError
from rood.metrics import auroc
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.threat import L2, Linf


@pytest.mark.parametrize("threat", [Linf(0.01), L2(0.1)])
def test_clean_attacked_and_certified_are_in_order(threat):
    msp, x_in, x_out = MSP(tiny("residual", scale=1.5)), images(12), images(12, seed=5) / 3
    now_in = climbed(msp.score_images, x_in, threat, 1)
    now_out = climbed(msp.score_images, x_out, threat, -1)
    s = {k: msp.score(v).detach().numpy() for k, v in locals().items() if k[-3:] in ("_in", "out")}
    found = certified(msp, x_in, x_out, threat, threshold=0.0)
    pairs = {
        "outside": ("x_in", "now_out"),
        "inside": ("now_in", "x_out"),
        "both": ("now_in", "now_out"),
    }
    for side, (a, b) in pairs.items():
        proved = found[side]["auroc"]
        assert proved.value <= auroc(inside=s[a], outside=s[b]) + 1e-12
        assert proved.low <= proved.value <= proved.high
    assert found["both"]["auroc"].value <= found["inside"]["auroc"].value
    assert found["both"]["auroc"].value <= found["outside"]["auroc"].value


def test_attacked_sides_count_with_their_bounds():
    msp, x_in, x_out = MSP(tiny("mlp")), images(9), images(7, seed=2)
    found = certified(msp, x_in, x_out, Linf(0.05), method="ibp", threshold=0.0)
    high = bounds(msp, x_in, Linf(0.05), "ibp").high.numpy()
    low = bounds(msp, x_out, Linf(0.05), "ibp").low.numpy()
    pairs = np.mean([(o > i) + 0.5 * (o == i) for i in high for o in low])
    assert found["both"]["auroc"].value == pytest.approx(pairs)


def test_the_radius_of_a_linear_score_is_its_distance():
    model = scored(wrap(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double()))
    head, x = Head(model), 0.4 + 0.2 * images(5)
    s = head.score(x)
    distance = (s / model.scalar_head.weight.abs().sum()).abs()
    found = radius(head, x, 0.0, Linf(0.1))
    assert bool((found <= distance.clamp(max=0.1) + 1e-12).all())
    assert bool((found >= distance.clamp(max=0.1) - 0.1 / 2**6).all())


def test_a_radius_needs_a_range():
    with pytest.raises(InputError, match="expected a largest eps above 0"):
        radius(MSP(tiny("mlp")), images(1), 0.0, Linf(0.0))
    assert torch.equal(radius(MSP(tiny("mlp")), images(0), 0.0, Linf(0.1)), torch.zeros(0).double())
