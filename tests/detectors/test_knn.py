"""KNN against plain loops."""

import pytest
import references as ref
from references import close, fitted_on

from rood.detectors import (
    KNN,
)


@pytest.mark.parametrize("k", [1, 7, 50])
def test_knn_equals_its_reference(k, double, queries, training):
    x, _, q = queries
    close(KNN(double.model, k=k).fit(double.train).score(x), ref.knn(q, training[0], k))


def test_knn_is_the_same_when_the_bank_is_searched_in_parts(double, queries, monkeypatch):
    x, _, _ = queries
    d = KNN(double.model, k=20).fit(double.train)
    whole = d.score(x)
    monkeypatch.setattr("rood.detectors.knn.CHUNK", 7)
    close(d.score(x), whole.detach().numpy(), rtol=1e-12)


def test_knn_does_not_see_the_length_of_the_features(double, training):
    out, y = ref.of_training(training)
    longer = out._replace(features=5 * out.features)
    s = fitted_on(KNN(double.model), out, y).score_outputs(out)
    close(fitted_on(KNN(double.model), longer, y).score_outputs(longer), s.numpy(), rtol=1e-9)
