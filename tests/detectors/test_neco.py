"""NECO against plain loops; its limits."""

import numpy as np
import pytest
from references import close

from rood.detectors import NECO
from rood.errors import InputError


def reference(queries, logits, f, dimension, times_logit):
    """|P g| / |g| with P from the singular vectors of the standardised features."""
    mean, scale = f.mean(axis=0), f.std(axis=0)
    _, _, v = np.linalg.svd((f - mean) / scale)
    found = []
    for q, z in zip(queries, logits, strict=True):
        g = (q - mean) / scale
        share = np.sqrt(sum((g @ direction) ** 2 for direction in v[:dimension])) / np.sqrt(g @ g)
        found.append(-share * (max(z) if times_logit else 1))
    return found


@pytest.mark.parametrize("times_logit", [False, True])
@pytest.mark.parametrize("dimension", [None, 5])
def test_neco_equals_its_reference(dimension, times_logit, double, queries, training):
    x, z, q = queries
    d = NECO(double.model, dimension=dimension, times_logit=times_logit).fit(double.train)
    want = reference(q, z, training[0], dimension or 3, times_logit)
    close(d.score(x), want, rtol=1e-7)


def test_neco_refuses_a_dimension_that_leaves_nothing(double):
    with pytest.raises(InputError, match="between 1 and 15"):
        NECO(double.model, dimension=16)
