"""Scores of the logits alone: references, invariances, rank of the published score."""

import math

import pytest
import references as ref
from references import close
from scipy.stats import spearmanr

from rood.detectors import (
    GEN,
    MSP,
    ODIN,
    Energy,
    Entropy,
    MaxLogit,
    UniformCrossEntropy,
)


@pytest.mark.parametrize(
    ("cls", "reference"),
    [
        (MSP, ref.margin),
        (MaxLogit, lambda z: -max(z)),
        (Energy, lambda z: -ref.lse(z)),
        (Entropy, ref.entropy_log_odds),
    ],
)
def test_a_score_of_the_logits_equals_its_reference(cls, reference, double, queries):
    x, z, _ = queries
    close(cls(double.model).score(x), [reference(list(row)) for row in z])


def test_energy_at_a_temperature_equals_its_reference(double, queries):
    x, z, _ = queries
    close(Energy(double.model, temperature=2.5).score(x), [-2.5 * ref.lse(r / 2.5) for r in z])


def test_a_constant_added_to_the_logits_shifts_two_scores_and_leaves_two(double, training):
    out, _ = ref.of_training(training)
    more = out._replace(logits=out.logits + 7)
    for cls, shift in ((Energy, -7), (MaxLogit, -7), (MSP, 0), (Entropy, 0)):
        d = cls(double.model)
        close(d.score_outputs(more) - shift, d.score_outputs(out).numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    ("ours", "paper"),
    [
        (MSP, lambda z: -ref.max_probability(z)),
        (Entropy, ref.entropy),
        (lambda m: ODIN(m, eta=0.0), lambda z: -ref.max_probability(z, 1000.0)),
    ],
)
def test_an_unsaturated_score_ranks_as_the_papers_does(ours, paper, double, queries):
    x, z, _ = queries
    want = [paper(list(row)) for row in z]
    assert spearmanr(ours(double.model).score(x), want).statistic == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0, 1000.0])
def test_msp_at_a_temperature_is_its_margin_and_ranks_as_its_probability(temperature, double, x):
    z = ref.logits_of(double.model, x)
    s = MSP(double.model, temperature=temperature).score(x)
    close(s, [ref.tempered_margin(row, temperature) for row in z])
    if temperature >= 1:  # below, the probability itself ties at 1
        p = [-ref.max_probability(row, temperature) for row in z]
        assert spearmanr(s, p).statistic == pytest.approx(1, abs=1e-12)


def test_a_constant_added_to_the_logits_leaves_gen_and_shifts_nothing(double):
    z = ref.random_logits(10, 5)
    for cls in (GEN, UniformCrossEntropy, lambda m: MSP(m, temperature=10.0)):
        d = cls(double.model)
        close(
            d.score_outputs(ref.of_logits(z + 7)),
            d.score_outputs(ref.of_logits(z)).numpy(),
            rtol=1e-9,
        )


def test_uniform_cross_entropy_is_the_mean_log_probability(double, x):
    z = ref.logits_of(double.model, x)
    want = [sum(math.log(p) for p in ref.softmax(row)) / 3 for row in z]
    s = UniformCrossEntropy(double.model).score(x)
    close(s, want, rtol=1e-8)
    assert s.max() <= -math.log(3)
    close(
        UniformCrossEntropy(double.model).score_outputs(ref.of_logits([[2.0] * 3])), [-math.log(3)]
    )
