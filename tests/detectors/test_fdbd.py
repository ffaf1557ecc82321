"""fDBD against plain loops."""

import numpy as np
import references as ref
from references import close

from rood.detectors import FDBD


def distances(f, z, weight, mean):
    """The mean distance to the boundaries of the other classes, over the distance to the mean."""
    y = max(range(len(z)), key=lambda c: z[c])
    found = [(z[y] - z[c]) / np.linalg.norm(weight[y] - weight[c]) for c in range(len(z)) if c != y]
    return np.mean(found) / np.linalg.norm(f - mean)


def test_fdbd_equals_its_reference(double, queries, training):
    x, z, q = queries
    weight, _ = ref.head_of(double)
    mean = training[0].mean(axis=0)
    want = [-distances(f, r, weight, mean) for f, r in zip(q, z, strict=True)]
    close(FDBD(double.model).fit(double.train).score(x), want, rtol=1e-9)


def test_the_numerator_is_the_distance_to_the_nearest_boundary_of_two_classes(double, queries):
    _, z, q = queries
    weight, bias = ref.head_of(double)
    y, c = np.argsort(z[0])[-1], np.argsort(z[0])[-2]
    w, b = weight[y] - weight[c], bias[y] - bias[c]
    foot = q[0] - (w @ q[0] + b) / (w @ w) * w  # the nearest point with equal logits
    gap = np.linalg.norm(q[0] - foot)
    np.testing.assert_allclose((z[0][y] - z[0][c]) / np.linalg.norm(w), gap, rtol=1e-9)
