"""KPCA against plain loops and against the kernel itself."""

import math

import numpy as np
import pytest
import torch
from references import close

from rood.detectors import KPCA
from rood.errors import InputError


def reconstruction_errors(queries, mapped, explained):
    mean = mapped.mean(axis=0)
    _, s, v = np.linalg.svd(mapped - mean, full_matrices=False)
    share, kept = 0.0, 0
    while share < explained:
        share += s[kept] ** 2 / sum(s**2)
        kept += 1
    found = []
    for q in queries:
        rest = q - mean
        for direction in v[:kept]:
            rest = rest - ((q - mean) @ direction) * direction
        found.append(np.linalg.norm(rest))
    return found


@pytest.mark.parametrize("explained", [0.5, 0.8, 0.95])
def test_the_cosine_kernel_is_pca_of_unit_features(explained, double, x, features, training):
    unit = lambda rows: np.array([r / np.linalg.norm(r) for r in rows])
    want = reconstruction_errors(unit(features), unit(training[0]), explained)
    d = KPCA(double.model, kernel="cosine", explained=explained).fit(double.train)
    close(d.score(x), want, rtol=1e-6)


def test_the_gaussian_kernel_is_pca_of_the_mapped_features(double, x, features, training):
    d = KPCA(double.model).fit(double.train)
    mapped, queries = (d.phi(torch.from_numpy(v)).numpy() for v in (training[0], features))
    assert mapped.shape[1] == 64
    close(d.score(x), reconstruction_errors(queries, mapped, 0.8), rtol=1e-6)


def test_inner_products_of_mapped_features_are_the_gaussian_kernel(double, features):
    d = KPCA(double.model, gamma=2.0, mapped=200_000)
    d.start()
    f = torch.from_numpy(features[[0, 7, 20]])
    mapped = d.phi(f)
    u = f / f.norm(dim=1, keepdim=True)
    for i in range(3):
        for j in range(3):
            kernel = math.exp(-2.0 * float((u[i] - u[j]) @ (u[i] - u[j])))
            assert float(mapped[i] @ mapped[j]) == pytest.approx(kernel, abs=0.01)


def test_kpca_refuses_to_explain_everything(double):
    with pytest.raises(InputError, match="0 < explained < 1"):
        KPCA(double.model, explained=1.0)
