"""ODIN against plain loops."""

import math

import pytest
import references as ref
import torch
from references import close

from rood.detectors import (
    MSP,
    ODIN,
)


@pytest.mark.parametrize(("temperature", "eta"), [(1.0, 0.01), (10.0, 0.0014), (1000.0, 0.0028)])
def test_odin_ranks_as_its_reference_and_is_its_margin(temperature, eta, double):
    x = torch.cat([double.inside[:2], double.outside[:2]])
    logits = ref.array_logits(double.model)
    p = [ref.odin(logits, image, temperature, eta) for image in x.numpy()]
    offset = math.log(2)  # k - 1
    want = [temperature * (math.log(1 / v - 1) - offset) + offset for v in p]
    s = ODIN(double.model, temperature=temperature, eta=eta).score(x)
    close(s, want, rtol=1e-6)


def test_odin_without_temperature_and_step_is_msp_exactly(world):
    x = torch.cat([world.inside, world.outside]).double()
    model = world.double().model
    assert torch.equal(ODIN(model, temperature=1.0, eta=0.0).score(x), MSP(model).score(x))
