"""Mahalanobis++ against plain loops."""

import numpy as np
import references as ref
from references import close

from rood.detectors import MahalanobisPlusPlus


def test_mahalanobis_plus_plus_is_mahalanobis_of_unit_features(double, x, features, training):
    f, y, _ = training
    unit = lambda rows: np.array([r / np.linalg.norm(r) for r in rows])
    want = ref.mahalanobis(unit(features), unit(f), y)
    close(MahalanobisPlusPlus(double.model).fit(double.train).score(x), want, rtol=1e-6)


def test_the_length_of_the_features_does_not_matter(double, training):
    out, y = ref.of_training(training)
    d = ref.fitted_on(MahalanobisPlusPlus(double.model), out, y)
    longer = out._replace(features=3.7 * out.features)
    close(d.score_outputs(longer), d.score_outputs(out).numpy(), rtol=1e-8)
