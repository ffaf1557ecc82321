"""GEN against the paper's sum; its gradient at large margins."""

import math

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr

from rood.detectors import (
    GEN,
)
from rood.models.model import Outputs


@pytest.mark.parametrize(("gamma", "top"), [(0.1, 100), (0.01, 2), (0.5, 4), (2.0, 7), (5.0, 1)])
def test_gen_is_the_log_mean_of_the_papers_sum_and_ranks_alike(gamma, top, double):
    z = ref.random_logits(40, 7, spread=2.0)
    s = GEN(double.model, gamma=gamma, top=top).score_outputs(ref.of_logits(z))
    sums = np.array([ref.gen_sum(list(row), gamma, top) for row in z])
    close(s, np.log(sums / min(top, 7)) / gamma, rtol=1e-9)
    assert spearmanr(s, sums).statistic == pytest.approx(1, abs=1e-12)


def test_gen_end_to_end_equals_its_sum(double, x):
    sums = np.array([ref.gen_sum(row, 0.1, 100) for row in ref.logits_of(double.model, x)])
    close(GEN(double.model).score(x), 10 * np.log(sums / 3), rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [5.0, 17.0, 120.0, 1000.0])
def test_gen_has_a_finite_gradient_that_does_not_die(margin, dtype, double):
    z = torch.tensor([[margin, 0.0, -1.0, 0.0]], dtype=dtype, requires_grad=True)
    s = GEN(double.model).score_outputs(Outputs(z, z))
    (g,) = torch.autograd.grad(s.sum(), z)
    assert s.isfinite().all()
    assert g.isfinite().all()
    assert g[0, 0] < -0.1
    if margin == 5:
        want = 10 * math.log(ref.gen_sum(z[0].tolist(), 0.1, 4) / 4)
        assert s.item() == pytest.approx(want, rel=1e-5 if dtype == torch.float32 else 1e-12)
