"""Bounds beside those of auto_LiRPA, where `ROOD_AUTO_LIRPA` names its folder."""

import copy
import sys

import lirpa
import pytest

import rood
from rood import data
from rood.threat import Linf

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not lirpa.FOLDER, reason="ROOD_AUTO_LIRPA names no folder of auto_LiRPA"),
]


@pytest.mark.parametrize("name", ["digits-aloe", "digits-ce"])
@pytest.mark.parametrize("method", lirpa.METHODS)
def test_bounds_of_logits_are_those_of_auto_lirpa(name, method, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    model = copy.deepcopy(rood.zoo.load(name)).double()
    x, threat = data.load("digits:near", limit=2).pixels().double(), Linf(0.02)
    low, high = lirpa.theirs(model, x, threat, method)
    box = lirpa.ours(model, x, threat, method)
    width = high - low
    assert bool(((box.high - box.low) <= 1.01 * width).all())
    assert bool(((box.low - low).abs() <= 0.01 * width).all())
