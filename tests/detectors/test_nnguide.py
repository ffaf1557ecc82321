"""NNGuide against plain loops."""

import numpy as np
import pytest
import references as ref
from references import close

from rood.detectors import NNGuide
from rood.errors import InputError


@pytest.mark.parametrize("k", [1, 7, 100])
def test_nnguide_equals_its_reference(k, double, queries, training):
    x, z, q = queries
    f, _, fz = training
    guides = [ref.lse(r) * v / np.linalg.norm(v) for v, r in zip(f, fz, strict=True)]
    want = []
    for v, r in zip(q, z, strict=True):
        terms = sorted((g @ v / np.linalg.norm(v) for g in guides), reverse=True)
        want.append(-ref.lse(r) * sum(terms[:k]) / k)
    close(NNGuide(double.model, k=k).fit(double.train).score(x), want, rtol=1e-9)


def test_nnguide_needs_as_many_images_as_neighbours(double):
    with pytest.raises(InputError, match="at least k = 100 training images, got 60"):
        NNGuide(double.model).fit(double.train[:1])
