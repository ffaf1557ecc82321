"""ReAct against plain loops; its straight-through surrogate."""

import math

import pytest
import references as ref
import torch
from references import close

from rood import data
from rood.detectors import (
    Energy,
    ReAct,
)
from rood.errors import InputError
from rood.models import zoo


@pytest.mark.parametrize("p", [50.0, 90.0, 99.0])
def test_react_equals_its_reference(p, double, x, features, training):
    c = ref.percentile([v for row in training[0] for v in row], p)
    want = [ref.head_energy([min(v, c) for v in f], *ref.head_of(double)) for f in features]
    d = ReAct(double.model, percentile=p).fit(double.train)
    assert float(d.clip_) == pytest.approx(c, rel=1e-12)
    close(d.score(x), want, rtol=1e-9)


def test_react_that_clips_nothing_is_the_energy(double, x):
    d = ReAct(double.model).fit(double.train)
    d.clip_ = torch.tensor(math.inf, dtype=torch.float64)
    assert torch.equal(d.score(x), Energy(double.model).score(x))


def test_reacts_straight_surrogate_has_its_value_and_a_gradient_where_it_clips(double):
    d = ReAct(double.model, percentile=1.0).fit(double.train)
    x = double.inside[:5].clone().requires_grad_()
    straight, plain = d.surrogates()
    close(straight(x), d.score(x).detach().numpy(), rtol=1e-12)
    close(plain(x), Energy(double.model).score(x).detach().numpy(), rtol=1e-12)
    (own,) = torch.autograd.grad(d.score(x).sum(), x)
    (through,) = torch.autograd.grad(straight(x).sum(), x)
    assert own.abs().amax() < 1e-3 * through.abs().amax()


def test_react_refuses_a_percentile_that_would_make_all_scores_alike():
    images = data.load("digits:inside", limit=200)
    d = ReAct(zoo.load("digits-ce"), percentile=5.0)  # of features behind a ReLU
    with pytest.raises(InputError, match="got 5, at which all are clipped to 0"):
        d.fit(images.batches(100))
