"""DICE against plain loops."""

import pytest
import references as ref
import torch
from references import close, fitted_on

from rood.detectors import (
    DICE,
)


@pytest.mark.parametrize("p", [0.0, 10.0, 90.0])
def test_dice_equals_its_reference(p, double, x, features, training):
    want = ref.dice(features, training[0], *ref.head_of(double), p)
    close(DICE(double.model, percentile=p).fit(double.train).score(x), want, rtol=1e-9)


def test_dice_keeps_only_what_is_strictly_above_the_percentile(double):
    double.model.head.weight.data.fill_(0.5)
    double.model.head.weight.data[0, 0] = -1.0
    flat = ref.of_features(double, torch.ones(4, 16))  # all contributions tie but the lowest
    y = torch.zeros(4).long()
    d = fitted_on(DICE(double.model, percentile=50.0), flat, y)
    assert d.mask_.sum() == 0
    d = fitted_on(DICE(double.model, percentile=0.0), flat, y)
    assert d.mask_.sum() == 47  # all but the minimum
    assert d.mask_[0, 0] == 0
