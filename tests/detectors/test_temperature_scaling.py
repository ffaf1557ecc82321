"""Temperature scaling finds the temperature of least loss."""

import numpy as np
import pytest
import references as ref
import torch
from references import close

from rood.detectors import (
    MSP,
    TemperatureScaling,
)
from rood.errors import InputError


def mean_loss(z, y, temperature):
    return np.mean(
        [ref.lse(r / temperature) - r[k] / temperature for r, k in zip(z, y, strict=True)]
    )


def test_temperature_scaling_finds_the_temperature_of_least_loss(double):
    images = torch.cat([x for x, _ in double.train])
    y = torch.cat([y for _, y in double.train])
    y = torch.where(torch.arange(len(y)) % 5 == 0, (y + 1) % 3, y)  # wrong labels: T stays inside
    d = TemperatureScaling(double.model).fit([(images, y)])
    z = np.array(ref.logits_of(double.model, images))
    t = float(d.temperature_)
    grid = [t * f for f in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0)]
    least = mean_loss(z, y.tolist(), t)
    assert all(mean_loss(z, y.tolist(), other) > least for other in grid)
    slope = (mean_loss(z, y.tolist(), t * 1.0001) - mean_loss(z, y.tolist(), t / 1.0001)) / 2e-4
    assert abs(slope) < 1e-4
    close(d.score(double.outside), MSP(double.model, temperature=t).score(double.outside).numpy())


def test_temperature_scaling_refuses_labels_that_are_no_class(double):
    with pytest.raises(InputError, match="labels 0 to 2"):
        TemperatureScaling(double.model).fit([(double.inside[:2], torch.tensor([0, 3]))])
