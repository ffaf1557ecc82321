"""The residual against plain loops, and against ViM."""

import numpy as np
import pytest
import references as ref
from references import close

from rood.detectors import Residual, ViM


@pytest.mark.parametrize("dimension", [None, 5])
def test_residual_equals_its_reference(dimension, double, x, features, training):
    weight, bias = ref.head_of(double)
    o = -np.linalg.pinv(weight) @ bias
    _, _, v = np.linalg.svd(training[0] - o)
    want = [np.linalg.norm(v[dimension or 8 :] @ (q - o)) for q in features]
    close(Residual(double.model, dimension=dimension).fit(double.train).score(x), want, rtol=1e-6)


def test_vim_is_the_scaled_residual_less_the_energy(double, queries):
    x, z, _ = queries
    vim, residual = (cls(double.model).fit(double.train) for cls in (ViM, Residual))
    want = float(vim.alpha_) * residual.score(x).numpy() - [ref.lse(r) for r in z]
    close(vim.score(x), want, rtol=1e-9)
