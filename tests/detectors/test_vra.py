"""VRA against plain loops; ReAct and the energy as its special cases."""

import pytest
import references as ref
import torch
from references import close

from rood.detectors import VRA, Energy, ReAct
from rood.errors import InputError


@pytest.mark.parametrize(("low", "high"), [(60.0, 95.0), (10.0, 90.0)])
def test_vra_equals_its_reference(low, high, double, x, features, training):
    values = [v for row in training[0] for v in row]
    a, c = ref.percentile(values, low), ref.percentile(values, high)
    shaped = [[0.0 if v < a else min(v, c) for v in f] for f in features]
    want = [ref.head_energy(f, *ref.head_of(double)) for f in shaped]
    close(VRA(double.model, low=low, high=high).fit(double.train).score(x), want, rtol=1e-9)


def test_vra_that_zeroes_nothing_is_react(double, x):
    react = ReAct(double.model, percentile=90.0).fit(double.train)
    d = VRA(double.model, low=0.0, high=90.0).fit(double.train)
    d.low_ = torch.tensor(-torch.inf, dtype=torch.float64)
    assert torch.equal(d.score(x), react.score(x))


def test_vras_straight_surrogate_has_its_value_and_a_gradient_where_it_zeroes(double):
    d = VRA(double.model, low=97.0, high=99.0).fit(double.train)
    x = double.inside[:5].clone().requires_grad_()
    straight, plain = d.surrogates()
    close(straight(x), d.score(x).detach().numpy(), rtol=1e-12)
    close(plain(x), Energy(double.model).score(x).detach().numpy(), rtol=1e-12)
    (own,) = torch.autograd.grad(d.score(x).sum(), x)
    (through,) = torch.autograd.grad(straight(x).sum(), x)
    assert (through.flatten(1) != 0).any(dim=1).all()
    assert own.abs().amax() < through.abs().amax()


def test_vra_refuses_percentiles_the_wrong_way_round(double):
    with pytest.raises(InputError, match="low < high"):
        VRA(double.model, low=90.0, high=10.0)
