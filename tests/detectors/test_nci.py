"""NCI against plain loops."""

import numpy as np
import pytest
import references as ref
from references import close

from rood.detectors import NCI


@pytest.mark.parametrize("alpha", [0.0, 1e-4, 0.1])
def test_nci_equals_its_reference(alpha, double, queries, training):
    x, z, q = queries
    weight, _ = ref.head_of(double)
    mean = training[0].mean(axis=0)
    want = []
    for f, r in zip(q, z, strict=True):
        w = weight[max(range(len(r)), key=lambda c: r[c])]
        near = sum(a * b for a, b in zip(w, f - mean, strict=True)) / np.linalg.norm(f - mean)
        want.append(-near - alpha * sum(abs(v) for v in f))
    close(NCI(double.model, alpha=alpha).fit(double.train).score(x), want, rtol=1e-9)
