"""NAC against plain loops; its gradient of the divergence against autograd."""

import math

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr

from rood.detectors import NAC


def states(f, z, weight):
    """Feature times the gradient of the divergence from uniform, through a linear head."""
    p = ref.softmax(z)
    k = len(p)
    gradient = [sum(weight[c][i] * (p[c] - 1 / k) for c in range(k)) for i in range(len(f))]
    return [a * b for a, b in zip(f, gradient, strict=True)]


@pytest.mark.parametrize(("alpha", "bins", "least"), [(100.0, 50, 0.05), (1.0, 20, 0.2)])
def test_nac_equals_its_reference(alpha, bins, least, double, queries, training):
    x, z, q = queries
    f, _, fz = training
    weight, _ = ref.head_of(double)
    place = lambda v: min(int(bins / (1 + math.exp(-alpha * v))), bins - 1)
    counts = np.zeros((bins, f.shape[1]))
    for v, r in zip(f, fz, strict=True):
        for i, state in enumerate(states(v, r, weight)):
            counts[place(state), i] += 1
    want = []
    for v, r in zip(q, z, strict=True):
        each = [
            min(counts[place(s), i] / len(f) / least, 1) for i, s in enumerate(states(v, r, weight))
        ]
        want.append(-sum(each) / len(each))
    d = NAC(double.model, alpha=alpha, bins=bins, least=least).fit(double.train)
    close(d.score(x), want, rtol=1e-9)


def test_states_hold_the_gradient_of_the_divergence(double, training):
    out, _ = ref.of_training(training)
    f = out.features[:5].clone().requires_grad_()
    z = double.model.head(f)
    divergence = -math.log(3) - z.log_softmax(dim=1).mean(dim=1)
    (gradient,) = torch.autograd.grad(divergence.sum(), f)
    got = NAC(double.model).states(out._replace(features=f.detach(), logits=z.detach()))
    close(got, (f * gradient).detach().numpy(), rtol=1e-9)


def test_the_interpolated_surrogate_ranks_much_as_the_score_does(double, x):
    d = NAC(double.model).fit(double.train)
    interpolated, _ = d.surrogates()
    assert spearmanr(d.score(x), interpolated(x)).statistic > 0.9
