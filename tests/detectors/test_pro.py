"""PRO against plain loops, over any base score and in its named forms."""

import math

import pytest
import references as ref
import torch
from references import close

from rood.detectors import (
    GEN,
    MSP,
    PRO,
    Energy,
    Entropy,
    Mahalanobis,
    registry,
)


@pytest.mark.parametrize(
    ("base", "score"),
    [
        (MSP, ref.margin),
        (Entropy, ref.entropy_log_odds),
        (Energy, lambda z: -ref.lse(z)),
    ],
)
def test_pro_equals_its_reference_over_any_base(base, score, double):
    x = torch.cat([double.inside[:2], double.outside[:2]])
    logits = ref.array_logits(double.model)
    s = PRO(base(double.model), eps=2e-3, steps=2).score(x)
    want = [ref.pro(lambda v: [score(z) for z in logits(v)], image, 2e-3, 2) for image in x.numpy()]
    close(s, want, rtol=1e-7)


def test_pro_takes_the_highest_step_and_not_the_last(double):
    x = double.outside[:3]
    logits, score = ref.array_logits(double.model), ref.entropy_log_odds
    want = [ref.pro(lambda v: [score(z) for z in logits(v)], image, 0.2, 1) for image in x.numpy()]
    pro = PRO(Entropy(double.model), eps=0.2, steps=1)
    assert (pro.climb(x)[1].argmax(dim=0) == 0).any()  # it overshoots
    close(pro.score(x), want, rtol=1e-7)
    close(pro.score(x.clone().requires_grad_()), want, rtol=1e-7)


def test_pro_steps_along_a_fitted_base_too(double):
    base = Mahalanobis(double.model).fit(double.train)
    x = double.inside[:8]
    assert (PRO(base, eps=1e-3, steps=2).score(x) > base.score(x)).all()


@pytest.mark.parametrize("base", [MSP, Entropy, Energy])
def test_pro_without_steps_is_its_base_exactly(base, world):
    base = base(world.model)
    assert torch.equal(PRO(base, steps=0).score(world.inside), base.score(world.inside))


def test_pro_of_no_length_is_its_base_exactly(world):
    base = MSP(world.model)
    assert torch.equal(PRO(base, eps=0.0, steps=2).score(world.inside), base.score(world.inside))


@pytest.mark.parametrize(
    ("name", "options", "score"),
    [
        ("pro_msp_t", {"temperature": 10.0}, lambda z: ref.tempered_margin(z, 10.0)),
        ("pro_gen", {"gamma": 0.5, "top": 2}, lambda z: 2 * math.log(ref.gen_sum(z, 0.5, 2) / 2)),
    ],
)
def test_a_named_form_of_pro_steps_along_its_own_base(name, options, score, double, x):
    d = registry.get(name)(double.model, eps=2e-3, steps=2, **options)
    logits = ref.array_logits(double.model)
    images = torch.cat([x[:1], x[-1:]])
    want = [
        ref.pro(lambda v: [score(z) for z in logits(v)], image, 2e-3, 2) for image in images.numpy()
    ]
    close(d.score(images), want, rtol=1e-6)


def test_the_named_forms_of_pro_have_the_papers_bases(world):
    t, gen = registry.get("pro_msp_t")(world.model), registry.get("pro_gen")(world.model)
    assert (type(t.base), t.base.temperature) == (MSP, 100.0)
    assert (type(gen.base), gen.base.gamma, gen.base.top) == (GEN, 0.01, 100)
    for d in (t, gen):
        none = PRO(d.base, steps=0)
        assert torch.equal(none.score(world.inside), d.base.score(world.inside))
