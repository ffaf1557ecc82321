"""Claim: the 95 % intervals of `rood.metrics.summary` hold the truth in at least 92 % of samples.

Scores are normal on both sides, so that the true value of every metric is known. Writes
docs/results/intervals.jsonl, from which `make generate` makes docs/evidence/intervals.md.
`python -m benchmarks.intervals`: about 6 minutes on one core.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.measure import RESULTS, machine
from rood.metrics import Floats, summary

FILE = RESULTS / "intervals.jsonl"
BAR = 0.92
AUROCS = (0.02, 0.1, 0.5, 0.9, 0.98, 0.998)
SIZES = ((50, 50), (200, 200), (1000, 1000), (50, 1000), (1000, 50))
SPREADS = (1.0, 1 / 3, 3.0)
FRAMES = (5, 20)  # images of a group, from and to
ICC = 0.5  # correlation of two images of a group


@dataclass(frozen=True)
class Setting:
    """From what the scores are drawn: N(0, 1) inside, N(mu, spread) outside."""

    n_in: int
    n_out: int
    auroc: float
    spread: float = 1.0  # standard deviation of the outside scores
    groups: int = 0  # on each side

    @property
    def mu(self) -> float:
        return float(norm.ppf(self.auroc) * np.hypot(1, self.spread))


THRESHOLD = float(norm.ppf(0.95))  # fixed beforehand


def truth(s: Setting, points: int = 400_000) -> dict[str, float]:
    """Every metric for infinitely many images, of which n_in / n_out are ID."""
    p = (np.arange(points) + 0.5) / points
    outside = norm(s.mu, s.spread)
    reached, odds = outside.cdf(norm.ppf(p)), s.n_out / s.n_in
    rejected = norm.sf(outside.ppf(p))  # of the inside, where p of the outside is accepted
    taus = np.linspace(-15, 15, points)
    missed = float(outside.cdf(THRESHOLD))
    return {
        "auroc": s.auroc,
        "aupr_in": float((p / (p + odds * reached)).mean()),
        "aupr_out": float(((1 - p) / (1 - p + rejected / odds)).mean()),
        "fpr95_in": missed,
        "fpr95_out": float(norm.sf(outside.ppf(0.05))),
        "detection_error": min(0.5, float((norm.sf(taus) + outside.cdf(taus)).min()) / 2),
        "fpr95_in_fixed": missed,
        "fpr95_out_fixed": 0.05,
        "detection_error_fixed": (missed + 0.05) / 2,
    }


def group_sizes(groups: int) -> NDArray[np.intp]:
    """Images of each group: all sizes in turn."""
    return FRAMES[0] + np.arange(groups) % (FRAMES[1] + 1 - FRAMES[0])


def drawn(s: Setting, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[Any] | None]:
    """Standard normal scores of one side, and their groups."""
    if not s.groups:
        return rng.normal(size=n), None
    ids = np.repeat(np.arange(s.groups), group_sizes(s.groups))
    shared, own = rng.normal(size=s.groups)[ids], rng.normal(size=ids.size)
    return ICC**0.5 * shared + (1 - ICC) ** 0.5 * own, ids


def coverage(
    s: Setting, repetitions: int, resamples: int = 200, use_groups: bool = True
) -> tuple[dict[str, float], dict[str, float]]:
    """How often each interval holds the truth, and its mean width."""
    true = truth(s)
    held, width = dict.fromkeys(true, 0), dict.fromkeys(true, 0.0)
    rng = np.random.default_rng([s.n_in, s.n_out, round(1000 * s.auroc), round(9 * s.spread)])
    for _ in range(repetitions):
        inside, ids_in = drawn(s, s.n_in, rng)
        outside, ids_out = drawn(s, s.n_out, rng)
        groups = (ids_in, ids_out) if use_groups else (None, None)
        found = summary(
            inside, s.mu + s.spread * outside, THRESHOLD, resamples=resamples, groups=groups
        )
        for name, (_, low, high) in found.items():
            held[name] += low - 1e-6 <= true[name] <= high + 1e-6  # the truth itself is summed up
            width[name] += (high - low) / repetitions
    return {k: v / repetitions for k, v in held.items()}, width


def settings() -> Iterator[Setting]:
    """Every cell of the tables."""
    for spread in SPREADS:
        for n, m in SIZES:
            yield from (Setting(n, m, a, spread) for a in AUROCS)
    for groups in (30, 60):
        n = int(group_sizes(groups).sum())
        yield from (Setting(n, n, a, groups=groups) for a in AUROCS)


def repetitions(s: Setting) -> int:
    """More where the bar is tested."""
    return 1000 if s.spread == 1 and not s.groups else 400


def main() -> int:
    """Simulate, print and write every cell; 1 where one is below the bar."""
    rows, worst = [{"run": machine()}], 1.0
    for s in settings():
        n = repetitions(s)
        held, width = coverage(s, n)
        row = asdict(s) | {"repetitions": n, "coverage": held}
        row["width"] = {k: round(w, 5) for k, w in width.items()}
        if s.groups:
            row["without_groups"] = coverage(s, n, 1, use_groups=False)[0]
        elif s.spread == 1:
            worst = min(worst, *held.values())
        rows.append(row)
        print(s, f"{min(held.values()):.3f}", min(held, key=held.__getitem__), flush=True)
    FILE.write_text("".join(json.dumps(r) + "\n" for r in rows))
    print(f"lowest coverage {worst:.3f}, bar {BAR:g}")
    return int(worst < BAR)


if __name__ == "__main__":
    sys.exit(main())
