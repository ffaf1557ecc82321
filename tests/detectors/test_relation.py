"""The relation graph's score against plain loops."""

import math

import numpy as np
import pytest
import references as ref
from references import close
from scipy.stats import spearmanr

from rood.detectors import Relation


def sums(queries, logits, f, f_logits, power):
    """The paper's: over training images, cosine (at least 0) times agreement of the softmax."""
    found = []
    for q, z in zip(queries, logits, strict=True):
        total = 0.0
        for v, r in zip(f, f_logits, strict=True):
            cosine = q @ v / np.linalg.norm(q) / np.linalg.norm(v)
            agree = sum(a * b for a, b in zip(ref.softmax(z), ref.softmax(r), strict=True))
            total += (max(0.0, cosine) * agree) ** power
        found.append(total)
    return found


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_relation_is_the_logarithm_of_the_papers_sum(power, double, queries, training):
    x, z, q = queries
    f, _, fz = training
    total = sums(q, z, f, fz, power)
    s = Relation(double.model, power=power).fit(double.train).score(x)
    close(s, [-math.log(3 * t / len(f)) for t in total], rtol=1e-8)
    assert spearmanr(s, [-t for t in total]).statistic == pytest.approx(1, abs=1e-12)
