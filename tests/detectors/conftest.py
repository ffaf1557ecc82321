"""What the tests of detectors share: the toy world in float64 and its outputs as arrays."""

import pytest
import torch


@pytest.fixture
def x(double):
    return torch.cat([double.inside[:15], double.outside[:15]])


@pytest.fixture
def features(double, x):
    """Features of x, as an array."""
    return double.model(x).features.numpy()


@pytest.fixture
def queries(double, x):
    """Images from both sides, and their outputs, as arrays."""
    out = double.model(x)
    return x, out.logits.numpy(), out.features.numpy()


@pytest.fixture
def training(double):
    """Features, labels and logits of the training images, as arrays."""
    outs = [double.model(x) for x, _ in double.train]
    y = torch.cat([y for _, y in double.train])
    f, z = (torch.cat([o[i] for o in outs]) for i in (1, 0))
    return f.numpy(), y.numpy(), z.numpy()
