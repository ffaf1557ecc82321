"""OpenMax against plain loops and SciPy's Weibull distribution."""

import math

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import weibull_min

from rood.detectors import OpenMax
from rood.detectors.openmax import weibull
from rood.errors import InputError


def unknown_log_odds(logits, f_logits, y, top, tail):
    """The paper's probability of the unknown class, as log-odds."""
    k = len(f_logits[0])
    fitted = []
    for c in range(k):
        right = np.array(
            [z for z, label in zip(f_logits, y, strict=True) if label == c == np.argmax(z)]
        )
        mean = right.mean(axis=0)
        far = sorted(np.linalg.norm(z - mean) for z in right)[-tail:]
        shape, _, scale = weibull_min.fit([d - far[0] + 1 for d in far], floc=0)
        fitted.append((mean, far[0], shape, scale))
    found = []
    for z in logits:
        order = sorted(range(k), key=lambda c: -z[c])
        revised, unknown = list(z), 0.0
        for rank, c in enumerate(order[:top]):
            mean, start, shape, scale = fitted[c]
            beyond = np.linalg.norm(z - mean) - start + 1
            cdf = weibull_min.cdf(max(beyond, 0), shape, scale=scale)
            part = (top - rank) / top * cdf
            unknown += z[c] * part
            revised[c] = z[c] * (1 - part)
        p = ref.softmax([*revised, unknown])[-1]
        found.append(math.log(p / (1 - p)))
    return found


@pytest.mark.parametrize(("top", "tail"), [(3, 20), (1, 10)])
def test_openmax_equals_its_reference(top, tail, double, queries, training):
    x, z, _ = queries
    _, y, fz = training
    d = OpenMax(double.model, top=top, tail=tail).fit(double.train)
    close(d.score(x), unknown_log_odds(z, fz, y, top, tail), rtol=1e-4)


@pytest.mark.parametrize("shape", [0.7, 1.5, 8.0])
def test_the_weibull_fit_is_the_maximum_of_the_likelihood(shape):
    x = 1 + weibull_min.rvs(shape, scale=2.0, size=200, random_state=0)
    k, scale = (float(v) for v in weibull(torch.from_numpy(x)))
    likelihood = lambda k, s: weibull_min.logpdf(x, k, scale=s).sum()
    best = likelihood(k, scale)
    for factor in (0.99, 1.01):
        assert likelihood(factor * k, scale) < best
        assert likelihood(k, factor * scale) < best


def test_openmax_names_the_class_that_has_too_few_images(double):
    train = [(x[y != 2], y[y != 2]) for x, y in double.train]
    with pytest.raises(InputError, match="got 0 of class 2"):
        OpenMax(double.model).fit(train)
