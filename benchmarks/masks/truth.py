"""The digits of the gallery, its masks built on them, and what each mask is really worth."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.masks import MASKS
from benchmarks.masks.base import EPS, Mask
from rood import zoo
from rood.attacks import APGD, PGD, WorstOf
from rood.attacks.base import Attack, Goal
from rood.data import load
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.metrics import auroc
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Batches, Images, Scores
from rood.threat import Linf, Threat, to_8_bit

DRAWS = 16  # scores averaged where two calls differ


@dataclass(frozen=True)
class Digits:
    """Batches to fit on, and the test images of both sides."""

    fit: Batches
    inside: Images
    outside: Images


@cache
def digits(n: int) -> Digits:
    """500 digits 0 to 5 to fit on, n others, and n digits 6 to 9."""
    inside, outside = load("digits:inside"), load("digits:near", limit=n)
    order = torch.randperm(len(inside), generator=torch.Generator().manual_seed(0))
    fit, test = inside.take(order[n : n + 500]), inside.take(order[:n])
    return Digits(list(fit.batches(250)), test.pixels(), outside.pixels())


def build(name: str, n: int) -> Mask:
    """A fresh mask, fitted, that has seen the test images where it wants to."""
    cls, images = MASKS[name], digits(n)
    mask = cls(cls.network(zoo.load(cls.base)).eval()).fit(images.fit)
    mask.know(images.inside, images.outside)
    return mask


def hidden(name: str, n: int) -> Detector:
    """The detector that the mask hides, fitted."""
    cls = MASKS[name]
    return cls.hidden(zoo.load(cls.base)).fit(digits(n).fit)


@contextmanager
def noise_of(seed: int) -> Iterator[None]:
    """What is drawn from the global generator here is the same each time, and leaves no trace."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def truth(name: str, n: int, threat: Threat = Linf(EPS)) -> float:  # noqa: B008
    """The lowest AUROC of the mask, both sides moved by an attacker who knows what it hides.

    Candidates are attacks on the hidden score and on smooth versions of the mask, whole, halved,
    rounded to 8 bits and moved to where the mask has no effect; the best for each image is chosen
    by the score of a fresh mask.
    """
    images = digits(n)
    with noise_of(1):
        sides = [
            list(candidates(name, n, side, x, threat))
            for side, x in ((1, images.inside), (-1, images.outside))
        ]
        pairs = [*zip(*sides, strict=True)]
        means = [_scores(name, n, pair).mean(dim=0) for pair in pairs]
        best_in = _choose(sides[0], [v[:n] for v in means])
        best_out = _choose(sides[1], [-v[n:] for v in means])
        return min(_auroc(_scores(name, n, pair), n) for pair in (*pairs, (best_in, best_out)))


def candidates(name: str, n: int, sign: int, x: Images, threat: Threat) -> Iterator[Images]:
    """Attacked images of one side, x first."""
    yield x
    cls = MASKS[name]
    found = list(_against_hidden(cls.base, cls.hidden.__func__, n, sign, threat))
    mask = build(name, n)
    for twin in mask.twins():
        goal = Goal(lambda z, twin=twin: sign * twin(z))
        for start in (x, found[0]):
            attack = APGD(steps=100, random_start=False)
            found.append(attack(goal.begin(start), x, threat, generator(0)))
    grid = (255 * x).round() / 255
    for moved in found:
        half = threat.project(x + 0.5 * (moved - x), x)
        yield from (moved, half, to_8_bit(moved, grid, threat), to_8_bit(half, grid, threat))
        yield threat.project(mask.harmless(moved, x), x)


@cache
def _against_hidden(
    base: str, hidden: Callable[[type[Mask], Model], Detector], n: int, sign: int, threat: Threat
) -> tuple[Images, ...]:
    """Attacks on the hidden score, which has a true gradient, without an early stop."""
    images = digits(n)
    detector = hidden(Mask, zoo.load(base)).fit(images.fit)
    goal, x = (
        (look_out(detector), images.inside) if sign > 0 else (look_in(detector), images.outside)
    )
    attacks: tuple[Attack, ...] = (WorstOf(), PGD(steps=40), APGD(steps=100))
    return tuple(attack(goal, x, threat, generator(0)) for attack in attacks)


@torch.no_grad()
def _scores(name: str, n: int, pair: tuple[Images, Images]) -> Float[Tensor, "draws b"]:
    """Scores of both sides by a mask that answered nothing before; several where calls differ."""
    x, mask = torch.cat(pair), build(name, n)
    first = mask.score(x)
    if torch.equal(build(name, n).score(x), first):
        return first[None]
    return torch.stack([mask.score(x) for _ in range(DRAWS)])


def _choose(found: list[Images], values: list[Scores]) -> Images:
    best = torch.stack(values).nan_to_num(-torch.inf).argmax(dim=0)
    return torch.stack(found)[best, torch.arange(len(best))]


def _auroc(draws: Float[Tensor, "draws b"], n: int) -> float:
    return sum(auroc(inside=s[:n], outside=s[n:]) for s in draws) / len(draws)
