"""Seven defences that only hide the gradient fall to the suite as the score they hide does."""

from functools import cache

import pytest
import torch

from benchmarks.masks import FIRST as MASKS
from benchmarks.masks.truth import build, digits, hidden, noise_of
from rood import audit
from rood.attacks import PGD, WorstOf
from rood.data import load
from rood.errors import CapabilityError
from rood.goals import look_in, look_out
from rood.metrics import auroc
from rood.seeds import generator
from rood.threat import Linf

# a probability of 1 ties with every other: at 0.1 one digit in five cannot leave that plateau,
# whatever the attack, and ties count half
EPS = dict.fromkeys(MASKS, 0.1) | {"saturated": 0.15}

LONG = dict.fromkeys(("noise_layer", "batch_normalised"), pytest.mark.slow)


@cache
def planted(n):
    images = digits(n)
    defences = {name: (build(name, n), hidden(name, n)) for name in MASKS}
    return defences, images.inside, images.outside


@cache
def unmasked(attack, eps, n):
    return attacked("saturated", 1, attack, eps, n)  # the same detector for all of them


def masked(name, attack, n):
    with noise_of(0):
        return attacked(name, 0, attack, EPS[name], n)


def attacked(name, which, attack, eps, n):
    """AUROC with both sides attacked, one by one, and scored in one batch."""
    defences, inside, outside = planted(n)
    detector = defences[name][which]
    moved = []
    for wanted, x in ((look_out, inside), (look_in, outside)):
        moved.append(attack(wanted(detector), x, Linf(eps), generator(0)))
    with torch.no_grad():
        s = detector.score(torch.cat(moved))
    return auroc(inside=s[:n], outside=s[n:])


@pytest.mark.parametrize("name", [n for n in MASKS if n not in ("noise_layer", "batch_normalised")])
def test_a_mask_deceives_plain_gradient_ascent(name):
    attack = PGD(steps=10)
    honest = unmasked(attack, EPS[name], 16)
    assert honest < 0.05
    try:
        assert masked(name, attack, 16) > honest + 0.2
    except CapabilityError:
        assert name == "thermometer"  # no gradient at all


@pytest.mark.parametrize("name", [pytest.param(n, marks=LONG.get(n, ())) for n in MASKS])
def test_a_mask_does_not_deceive_the_suite(name):
    n = 8 if name == "batch_normalised" else 16  # each of its images needs a batch of its own
    attack = WorstOf(tier="quick")
    assert masked(name, attack, n) == pytest.approx(unmasked(attack, EPS[name], n), abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_does_not_deceive_the_standard_suite(name):
    attack, n = WorstOf(), 64
    assert masked(name, attack, n) == pytest.approx(unmasked(attack, EPS[name], n), abs=0.05)


FLAG = {
    "saturated": "zero_gradient",
    "sign_cut": "zero_gradient",
    "quantised": "zero_gradient",
    "thermometer": "zero_gradient",
    "boxed": "zero_gradient",
    "batch_normalised": "batch_matters",
}
N = 12  # images per side of an audit


def flags(detector, out, attack):
    """The verdict of every check, of an audit with both sides attacked."""
    _, inside, outside = planted(N)
    with noise_of(0):
        results = audit(
            detector.model,
            {"it": detector},
            inside=inside,
            calibrate=load("digits:inside", limit=40),
            outside={"near": outside},
            threats=[Linf(0.1)],
            sides=["both"],
            attack=attack,
            out=out,
        )
    found = [r for r in results.rows if r.metric.startswith("flag_")]
    return {r.metric.removeprefix("flag_"): r.verdict for r in found}


@pytest.mark.parametrize("name", FLAG)
def test_a_mask_is_flagged(name, tmp_path):
    detector, _ = planted(N)[0][name]
    # plain ascent stops where there is no gradient at all
    attack = WorstOf(tier="quick") if name == "thermometer" else PGD(steps=3)
    assert flags(detector, tmp_path / "audit", attack)[FLAG[name]] == "fail"


def test_an_honest_score_has_none_of_these_flags(tmp_path):
    _, honest = planted(N)[0]["saturated"]
    found = flags(honest, tmp_path / "audit", PGD(steps=5))
    assert {found[flag] for flag in FLAG.values()} == {"pass"}


@pytest.mark.slow
def test_declared_noise_is_not_flagged_for_being_noise(tmp_path):
    detector, _ = planted(N)[0]["noise_layer"]
    assert flags(detector, tmp_path / "audit", PGD(steps=3))["two_calls_differ"] == "pass"
