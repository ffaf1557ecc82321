"""ASH and SCALE against plain loops."""

import math

import pytest
import references as ref
import torch
from references import close

from rood.detectors import (
    ASH,
    DICE,
    Energy,
    ReAct,
    Scale,
    registry,
)
from rood.errors import InputError
from rood.models.model import Outputs


@pytest.mark.parametrize("p", [0.0, 30.0, 65.0, 90.0])
@pytest.mark.parametrize("treatment", ["b", "p", "s"])
def test_ash_equals_its_reference(treatment, p, double, x, features):
    d = registry.get(f"ash_{treatment}")(double.model, percentile=p)
    want = [ref.head_energy(ref.ash(f, p, treatment), *ref.head_of(double)) for f in features]
    close(d.score(x), want, rtol=1e-9)


@pytest.mark.parametrize("treatment", ["b", "p", "s"])
def test_ash_breaks_ties_by_the_order_of_the_features(treatment, double):
    f = [0.0, 1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    want = ref.head_energy(ref.ash(f, 70.0, treatment), *ref.head_of(double))
    d = ASH(double.model, treatment=treatment, percentile=70.0)
    close(d.score_outputs(ref.of_features(double, [f])), [want], rtol=1e-9)
    assert ref.kept(f, 70.0) == [2, 1, 3, 4, 6]


def test_ash_that_prunes_nothing_is_the_energy(double, x):
    d = ASH.p(double.model, percentile=0.0)
    assert torch.equal(d.score(x), Energy(double.model).score(x))


@pytest.mark.parametrize("p", [0.0, 65.0, 85.0])
def test_scale_equals_its_reference(p, double, x, features):
    want = []
    for f in features:
        r = sum(f) / sum(f[j] for j in ref.kept(f, p))
        want.append(ref.head_energy([v * math.exp(r) for v in f], *ref.head_of(double)))
    close(Scale(double.model, percentile=p).score(x), want, rtol=1e-9)


@pytest.mark.parametrize("make", [Scale, ASH.s])
def test_the_scaling_does_not_overflow_where_what_is_kept_sums_to_nothing(make, world):
    f = torch.zeros(2, 16)
    f[1] = 1e-30
    s = make(world.model).score_outputs(Outputs(world.model.head(f), f))
    assert s.isfinite().all()


@pytest.mark.parametrize("make", [ASH, Scale, ReAct, DICE])
def test_a_percentile_that_is_none_is_refused(make, world):
    with pytest.raises(InputError, match="percentile"):
        make(world.model, percentile=101.0)
