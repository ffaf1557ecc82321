"""What of an audit fits into a time limit, estimated from the measured time of one gradient."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from time import perf_counter
from typing import Any

import torch

from rood.attacks import registry
from rood.attacks.base import Attack, value_and_gradient
from rood.attacks.pgd import PGD
from rood.attacks.worst_of import WorstOf
from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError
from rood.evaluation.effort import Counts, Pace, of_attack
from rood.evaluation.probes import CONTROLS, FEW
from rood.goals import look_in
from rood.shapes import Images

UNITS = {"s": 1, "m": 60, "h": 3600}
MARGIN = 1.25  # for clean scores, files, and a busy machine
AROUND = 5.0  # seconds, at most a tenth of the limit, for start-up and the page
SLOW = 1.0  # seconds: a gradient this slow is measured once more, not twice
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
FEWEST, MOST = (f(images for _, images in LADDER) for f in (min, max))


def seconds(text: str) -> float:
    """Convert "90s", "10m" or "1.5h" to seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise InputError(f"expected a time such as 90s, 10m or 2h, got {text!r}")
    return float(match[1]) * UNITS[match[2]]


@dataclass(frozen=True)
class Choice:
    """What was chosen for a time limit, and the time it should take at most."""

    asked: str
    attack: Attack
    limit: int
    detectors: tuple[str, ...]
    dropped: tuple[str, ...]
    seconds: float

    def sentence(self) -> str:
        """For the terminal."""
        options = ", ".join(f"{k}={v}" for k, v in _shown(self.attack).items())
        left_out = f", without {', '.join(self.dropped)}" if self.dropped else ""
        late = ", which is over the limit" if self.seconds > seconds(self.asked) else ""
        return (
            f"for {self.asked}: {type(self.attack).__name__}({options}), {self.limit} images per "
            f"set, {len(self.detectors)} detectors{left_out}; at most {self.seconds:.0f} s{late}"
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
        return cls(facts["asked"], attack, facts["limit"], kept, dropped, facts["seconds"])


def choose(
    asked: str,
    spent: float,  # seconds for loading and fitting
    each: Mapping[
        str, tuple[float, int]
    ],  # seconds per gradient and number of variants, by detector
    sets: int,
    threats: int,
    attack: Attack | None = None,  # None: choose one
    limit: int | None = None,
) -> Choice:
    """Strongest preset within the time limit; if none is, the weakest without slow detectors."""
    left = seconds(asked) - spent - min(AROUND, seconds(asked) / 10)
    steps = [(attack or a, limit or n) for a, n in LADDER]
    cost = lambda names, step: spent + sum(_unit(each[d], *step) * sets * threats for d in names)
    names = list(each)
    # lazily: counting the passes of an attack that does not fit takes time too
    fitting = list(takewhile(lambda step: cost(names, step) - spent <= left, steps))
    best = fitting[-1] if fitting else steps[0]
    dropped: list[str] = []
    while cost(names, best) - spent > left and len(names) > 1:
        costs = {d: _unit(each[d], *best) for d in names}
        # of about equal ones the last named: the measurement is not exact
        slowest = [d for d in names if ALIKE * costs[d] >= max(costs.values())][-1]
        names.remove(slowest)
        dropped.append(slowest)
    return Choice(asked, *best, tuple(names), tuple(dropped), cost(names, best))


def gradient_time(detector: Detector, x: Images) -> float:
    """Seconds per image for one value and gradient of its score."""
    goal = look_in(detector)

    def once() -> float:
        start = perf_counter()
        try:
            value_and_gradient(goal, x)
        except CapabilityError:  # no gradient: attacks use its value alone
            with torch.no_grad():
                goal(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        return perf_counter() - start

    first = once()  # includes allocation and compilation
    times = [once()] if first > SLOW else [once(), once()]
    return sum(times) / len(times) / len(x)  # the mean: a busy machine stays busy


def _unit(each: tuple[float, int], attack: Attack, images: int) -> float:
    """Seconds for one detector, set and threat, the examination of the attack included."""
    time, variants = each
    counts = Counts(images, min(CONTROLS, images), min(FEW, images))
    return MARGIN * of_attack(Pace(0.0, time), attack, variants, counts)


def _shown(attack: Attack) -> dict[str, object]:
    return {k: v for k, v in asdict(attack).items() if k in ("tier", "steps", "restarts")}
