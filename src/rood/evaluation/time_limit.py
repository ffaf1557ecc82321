"""What of an audit fits into a time limit, estimated from short measurements of each network."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from time import perf_counter
from typing import Any

import torch

from rood.attacks import registry
from rood.attacks.apgd import APGD
from rood.attacks.base import Attack
from rood.attacks.pgd import PGD
from rood.attacks.random_search import RandomSearch
from rood.attacks.worst_of import WorstOf
from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError
from rood.evaluation.deadline import OVER, PAGE, seconds
from rood.evaluation.effort import Counts, Pace, of_attack, passes
from rood.evaluation.probes import CONTROLS, FEW
from rood.goals import look_in
from rood.models.model import Model
from rood.shapes import Images
from rood.threat import Threat

MARGIN = 1.25  # for clean scores, files, and a busy machine
SLOW = 0.5  # seconds: where a gradient of a few images takes longer, it is not measured again ...
SLOWER = 1 / 600  # ... nor where it takes this share of the limit
SHARE = 0.25  # of the limit: what passes over clean images may take, those to fit detectors too
LEAST = 100  # clean images that are always used for each purpose
AROUND = 1500  # images that checks of the setup and of the behaviour pass forward, about
PURPOSES = {
    "fit": "fit the detectors",
    "calibrate": "set the threshold",
    "accuracy": "measure the accuracy",
}
HOPE = 3.0  # most attacks stop early: up to so many times the limit, the run itself decides
ALIKE = 1.5  # costs within this factor count as equal
QUICK = WorstOf(tier="quick")
# presets, weakest first: attack and images per set
LADDER: tuple[tuple[Attack, int], ...] = (
    (PGD(steps=10), 25),
    (PGD(steps=20), 50),
    (QUICK, 50),
    (QUICK, 100),
    (QUICK, 200),
    (WorstOf(tier="standard"), 200),
    (WorstOf(tier="standard"), 500),
    (WorstOf(tier="full"), 500),
    (WorstOf(tier="full"), 1000),
)
SHORT = APGD(steps=3)  # the attack that is timed
BLIND = RandomSearch(queries=5)  # ... where there is no gradient
FEWEST, MOST = (f(images for _, images in LADDER) for f in (min, max))


@dataclass(frozen=True)
class Choice:
    """What was chosen for a time limit, and the time it should take at most."""

    asked: str
    attack: Attack
    limit: int
    detectors: tuple[str, ...]
    dropped: tuple[str, ...]
    seconds: float
    left_out: tuple[tuple[str, str], ...] = ()  # detectors and budgets; known after the run

    def sentence(self) -> str:
        """For the terminal."""
        options = ", ".join(f"{k}={v}" for k, v in _shown(self.attack).items())
        late = ", which is over the limit" if self.seconds > seconds(self.asked) else ""
        return (
            f"for {self.asked}: {type(self.attack).__name__}({options}), {self.limit} images per "
            f"set, {len(self.detectors)} detectors; about {self.seconds:.0f} s{late}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For the manifest; `from_dict` reads it."""
        options = {k: v for k, v in asdict(self.attack).items() if k != "compare"}
        facts = asdict(self) | {"attack": type(self.attack).__name__, "attack_options": options}
        return facts | {"chosen": self.sentence()}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Choice":
        """The choice of an earlier run, which a run that continues it must share."""
        attack = registry.by_class_name(facts["attack"])(**facts["attack_options"])
        kept, dropped = tuple(facts["detectors"]), tuple(facts["dropped"])
        left_out = tuple((d, t) for d, t in facts.get("left_out", ()))
        return cls(
            facts["asked"], attack, facts["limit"], kept, dropped, facts["seconds"], left_out
        )


def choose(
    asked: str,
    spent: float,  # seconds for loading and fitting
    each: Mapping[str, tuple[Pace, int]],  # by detector: its pace and number of variants
    sets: int,
    threats: int,
    attack: Attack | None = None,  # None: choose one
    limit: int | None = None,
) -> Choice:
    """Strongest preset within the time limit; if none is, the weakest without slow detectors."""
    left = seconds(asked) - spent - min(PAGE, seconds(asked) / 10)
    steps = [(attack or a, limit or n) for a, n in LADDER]
    cost = lambda names, step: spent + sum(_unit(each[d], *step) * sets * threats for d in names)
    names = list(each)
    # lazily: counting the passes of an attack that does not fit takes time too
    fitting = list(takewhile(lambda step: cost(names, step) - spent <= left, steps))
    best = fitting[-1] if fitting else steps[0]
    dropped: list[str] = []
    while cost(names, best) - spent > HOPE * left and len(names) > 1:
        costs = {d: _unit(each[d], *best) for d in names}
        # of about equal ones the last named: the measurement is not exact
        slowest = [d for d in names if ALIKE * costs[d] >= max(costs.values())][-1]
        names.remove(slowest)
        dropped.append(slowest)
    return Choice(asked, *best, tuple(names), tuple(dropped), cost(names, best))


def clean_images(
    asked: str,
    image: float,  # seconds of a forward pass
    parts: Mapping[str, tuple[int, float]],  # images there are, and passes over them, by purpose
) -> dict[str, int]:
    """How many clean images to use for what: all, unless they would take too much of the limit."""
    share = SHARE * seconds(asked) / max(_passed(image, parts), 1e-9)
    return {
        k: n if share >= 1 else min(n, max(LEAST, int(share * n))) for k, (n, _) in parts.items()
    }


def refuse_too_short(
    asked: str,
    spent: float,  # seconds for loading
    image: float,
    parts: Mapping[str, tuple[int, float]],  # the clean images to use
    attack: float,  # seconds of the least attack
) -> None:
    """Refuse a limit that not even the least attack on one detector fits into."""
    least = spent + AROUND * image + _passed(image, parts) + attack
    if least > (1 + OVER) * seconds(asked):
        # of a longer limit, clean images may take their share
        enough = MARGIN * max(least, (spent + AROUND * image + attack) / (1 - SHARE))
        what = "attack one detector" if attack else "score clean images"
        raise InputError(
            f"expected a time limit of at least {math.ceil(enough / 60)}m to {what} with "
            f"{image:.2g} s for one image, got {asked}: give more time or a faster device"
        )


def fewer(asked: str, kept: Mapping[str, int], there: Mapping[str, int]) -> str:
    """How many clean images were used for what, in a sentence; "" where all were."""
    said = [f"{n} of {there[k]} {PURPOSES[k]}" for k, n in kept.items() if n < there[k]]
    return f"{asked} is too short for all clean images: {', '.join(said)}" if said else ""


def least_attack(pace: Pace, attack: Attack | None, sizes: Sequence[int]) -> float:
    """Seconds of an attack, else of the weakest, on one detector at one budget; it stops early."""
    counts = [Counts(n / HOPE, min(CONTROLS, n), min(FEW, n)) for n in sizes]
    return sum(of_attack(pace, attack or LADDER[0][0], 0, c) for c in counts)


def _passed(image: float, parts: Mapping[str, tuple[int, float]]) -> float:
    """Seconds of all passes over clean images."""
    return image * sum(n * passes for n, passes in parts.values())


@torch.no_grad()
def forward(model: Model, x: Images) -> float:
    """Seconds of a forward pass of one image."""
    model(x[:1])  # includes allocation and compilation
    start = perf_counter()
    model(x)
    if x.is_cuda:
        torch.cuda.synchronize()
    return (perf_counter() - start) / len(x)


def measured(detector: Detector, x: Images, threat: Threat, asked: str = "") -> Pace:
    """Seconds of a gradient, from a short attack on a few images and on all of them."""
    few, slow = x[:FEW], min(SLOW, SLOWER * seconds(asked)) if asked else SLOW
    first = _timed(detector, few, threat)  # includes allocation and compilation
    if first > slow or len(few) == len(x):
        return Pace(0.0, first / len(few))
    some, every = _timed(detector, few, threat), _timed(detector, x, threat)
    image = min(max(0.0, every - some) / (len(x) - len(few)), every / len(x))
    return Pace(max(0.0, some - image * len(few)), image)


def _timed(detector: Detector, x: Images, threat: Threat) -> float:
    """Seconds of a gradient on the images, or of what takes its place."""
    goal, draws = look_in(detector), torch.Generator().manual_seed(0)
    attack: Attack = SHORT
    start = perf_counter()
    try:
        attack(goal, x, threat, draws)
    except CapabilityError:  # no gradient: attacks use its value alone
        attack, start = BLIND, perf_counter()
        attack(goal, x, threat, draws)
    if x.is_cuda:
        torch.cuda.synchronize()
    return (perf_counter() - start) / passes(attack, 0)


def _unit(each: tuple[Pace, int], attack: Attack, images: int) -> float:
    """Seconds for one detector, set and threat, the examination of the attack included."""
    pace, variants = each
    counts = Counts(images, min(CONTROLS, images), min(FEW, images))
    return MARGIN * of_attack(pace, attack, variants, counts)


def _shown(attack: Attack) -> dict[str, object]:
    return {k: v for k, v in asdict(attack).items() if k in ("tier", "steps", "restarts")}
