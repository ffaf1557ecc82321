"""APGD against plain loops over one image: its momentum, its checkpoints, its way back."""

import numpy as np
import pytest
import torch
from bumpy import PHASE, allowed, bumpy, images, slope, uphill, value

from rood.attacks import APGD, Goal
from rood.attacks.apgd import checkpoints
from rood.seeds import generator
from rood.threat import L2, Linf

STEPS = 100
CHECKS = (22, 41, 57, 70, 80, 87, 93, 99)  # 0.22, then gaps that shrink by 0.03 down to 0.06


def reference(x, start, eps, norm):
    """One image, from Algorithm 1 of the paper; after a way back the last step is forgotten."""
    step, now, last, best = 2 * eps, start, start, start
    rises = since = 0
    halved_before, best_before, halvings = True, value(start), 0
    for t in range(1, STEPS + 1):
        ahead = allowed(now + step * uphill(slope(now), norm), x, eps, norm)
        share = 1.0 if t == 1 else 0.75
        mixed = now + share * (ahead - now) + (1 - share) * (now - last)
        new = allowed(mixed, x, eps, norm)
        rises, since = rises + (value(new) > value(now)), since + 1
        last, now = now, new
        best = now if value(now) > value(best) else best
        if t in CHECKS:
            stuck = not halved_before and value(best) <= best_before
            halved_before = rises < 0.75 * since or stuck
            best_before, rises, since = value(best), 0, 0
            if halved_before:
                step, now, last, halvings = step / 2, best, best, halvings + 1
    return best, halvings


def test_checkpoints_come_ever_closer():
    assert checkpoints(STEPS) == set(CHECKS)
    assert min(checkpoints(3)) == 1
    # AutoAttack's: whole steps, so that a short run ends with a check after every step
    assert checkpoints(20) == {4, 7, 9, *range(10, 21)}


@pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)], ids=str)
@pytest.mark.parametrize("begun", [False, True])
def test_apgd_does_what_plain_loops_do(threat, begun):
    x = images(6)
    start = threat.project(x + 0.05 * PHASE.cos().view(3, 4, 4), x) if begun else x
    goal = Goal(bumpy, starts=(start,)) if begun else bumpy
    found = APGD(steps=STEPS, random_start=False)(goal, x, threat, generator(0))
    counts = []
    for one, begin, end in zip(x, start, found, strict=True):
        flat = (v.flatten().numpy() for v in (one, begin))
        best, halvings = reference(*flat, threat.eps, threat.norm)
        np.testing.assert_allclose(end.flatten().numpy(), best, rtol=0, atol=1e-9)
        counts.append(halvings)
    # each image has a step of its own; along signs, so curved a goal halves it at every check
    assert set(counts) == {len(CHECKS)} if threat.norm == "linf" else len(set(counts)) > 1


def test_a_block_that_rises_and_gains_nothing_halves_the_step_too():
    """The paper's second condition: three steps of four rise, and end below the best."""
    said = iter([0.0, 1.0, 2.0, 3.0, 4.0, 10.0, -4.0, -3.0, -2.0, -1.0] + [20.0] * 20)
    asked = []

    def goal(x):
        asked.append(x.detach().clone())
        total = x.sum(dim=(1, 2, 3))
        return total - total.detach() + next(said)

    x, threat = torch.full((1, 3, 4, 4), 0.5, dtype=torch.float64), Linf(0.4)
    assert sorted(checkpoints(25))[:2] == [5, 9]
    APGD(steps=25, first_step=0.1, random_start=False)(goal, x, threat, generator(0))
    step = 0.1 * threat.eps
    torch.testing.assert_close(asked[1] - asked[0], torch.full_like(x, step))
    torch.testing.assert_close(asked[10] - asked[5], torch.full_like(x, 0.75 * step / 2))
