"""Seven defences that only hide the gradient fall to the suite as the score they hide does."""

from functools import cache

import pytest
import torch
from masked import MASKS, digits, masks, noise_of

from rood import zoo
from rood.attacks import PGD, WorstOf
from rood.attacks._uncut import in_company
from rood.errors import CapabilityError
from rood.goals import look_in, look_out
from rood.metrics import auroc
from rood.seeds import generator
from rood.threat import Linf

# a probability of 1 ties with every other: at 0.1 one digit in five cannot leave that plateau,
# whatever the attack, and ties count half
EPS = dict.fromkeys(MASKS, 0.1) | {"saturated": 0.15}
COMPANY = 3  # images among which a score that depends on its batch is asked for


@cache
def planted(n):
    fit, inside, outside = digits(n)
    company = next(iter(fit))[0][:COMPANY]
    return masks(zoo.load("digits-ce"), fit), inside, outside, company


@cache
def unmasked(attack, eps, n):
    return attacked("saturated", 1, attack, eps, n)  # the same detector for all of them


def masked(name, attack, n):
    with noise_of(0):
        return attacked(name, 0, attack, EPS[name], n)


def attacked(name, which, attack, eps, n):
    """AUROC with both sides attacked, one by one, and scored in one batch."""
    defences, inside, outside, company = planted(n)
    detector = defences[name][which]
    moved = []
    for wanted, x in ((look_out, inside), (look_in, outside)):
        goal = wanted(detector)
        if name == "batch_normalised":
            goal = in_company(goal, company)
        moved.append(attack(goal, x, Linf(eps), generator(0)))
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


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_does_not_deceive_the_suite(name):
    n = 8 if name == "batch_normalised" else 16  # each of its images needs a batch of its own
    attack = WorstOf(tier="quick")
    assert masked(name, attack, n) == pytest.approx(unmasked(attack, EPS[name], n), abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_does_not_deceive_the_standard_suite(name):
    attack, n = WorstOf(), 64
    assert masked(name, attack, n) == pytest.approx(unmasked(attack, EPS[name], n), abs=0.05)
