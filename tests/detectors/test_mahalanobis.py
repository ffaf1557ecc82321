"""Mahalanobis and its relative form against plain loops; invariances."""

import numpy as np
import pytest
import references as ref
import torch
from references import close, fitted_on

from rood.detectors import (
    Mahalanobis,
    RelativeMahalanobis,
)


@pytest.mark.parametrize(
    ("pooling", "covariance"),
    [("pooled", ref.pooled_covariance), ("class_average", ref.averaged_covariance)],
)
def test_mahalanobis_equals_its_reference_on_classes_of_unequal_size(
    pooling, covariance, double, queries, training
):
    x, _, q = queries
    f, y, _ = training
    keep = (y != 0) | (np.arange(len(y)) % 3 == 0)
    images = torch.cat([x for x, _ in double.train])[torch.from_numpy(keep)]
    labels = torch.from_numpy(y[keep])
    d = Mahalanobis(double.model, pooling=pooling).fit([(images, labels)])
    close(d.score(x), ref.mahalanobis(q, f[keep], y[keep], covariance), rtol=1e-6)
    assert d.ridge_ == 0


def test_the_two_poolings_differ_on_classes_of_unequal_size(training):
    f, y, _ = training
    keep = (y != 0) | (np.arange(len(y)) % 3 == 0)
    a, b = ref.pooled_covariance(f[keep], y[keep]), ref.averaged_covariance(f[keep], y[keep])
    assert np.abs(a - b).max() > 0.01 * np.abs(a).max()


def test_relative_mahalanobis_equals_its_reference(double, queries, training):
    x, _, q = queries
    f, y, _ = training
    d = RelativeMahalanobis(double.model).fit(double.train)
    close(d.score(x), ref.relative_mahalanobis(q, f, y), rtol=1e-6)


@pytest.mark.parametrize("cls", [Mahalanobis, RelativeMahalanobis])
def test_mahalanobis_does_not_see_an_affine_change_of_the_features(cls, double, training):
    out, y = ref.of_training(training)
    g = torch.Generator().manual_seed(0)
    a = torch.randn(16, 16, generator=g).double() + 4 * torch.eye(16)
    moved = out._replace(features=out.features @ a.T + 3)
    s = fitted_on(cls(double.model), out, y).score_outputs(out)
    close(fitted_on(cls(double.model), moved, y).score_outputs(moved), s.numpy(), rtol=1e-6)
