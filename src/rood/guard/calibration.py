"""A threshold with a guaranteed false-alarm rate (split conformal), and its confidence."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from rood.errors import expect
from rood.metrics import Interval, false_alarm_at, wilson

SLACK = 1e-9  # 0.05 * 200 must count as 10 despite rounding


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The threshold is the `rank`-th smallest of n ID scores; higher scores are rejected.

    A new image from the same source is rejected with probability at most
    (n + 1 - rank) / (n + 1), by exchangeability, for any score and any n.
    """

    rate: float  # of false alarms, as requested
    n: int
    rank: int
    threshold: float
    rejected: int  # of the n images
    # of the n images, sorted, for watching streams; empty in guards of earlier versions
    scores: tuple[float, ...] = field(default=(), compare=False, repr=False)

    @property
    def bound(self) -> float:
        """Upper bound on the probability of a false alarm; at most `rate`."""
        return (self.n + 1 - self.rank) / (self.n + 1)

    @property
    def observed(self) -> Interval:
        """The rejected share of the n calibration images, with Wilson's interval."""
        return wilson(self.rejected / self.n, self.n)

    @property
    def deployed(self) -> Interval:
        """The false-alarm rate of this threshold, which follows Beta(n + 1 - rank, rank).

        Exact without ties between scores; with ties the rate can only be lower.
        """
        low, high = betaincinv(self.n + 1 - self.rank, self.rank, [0.025, 0.975]).tolist()
        return Interval(self.bound, low, high)

    def told(self) -> str:
        """A sentence for the user."""
        share, low, high = (100 * v for v in self.observed)
        _, least, most = (100 * v for v in self.deployed)
        return (
            f"{self.rejected} of {self.n} calibration images are rejected, {share:.1f} % "
            f"({low:.1f} to {high:.1f}); a new image of the same source is rejected with "
            f"probability {100 * self.bound:.2f} % at most, on average over calibrations; for this "
            f"one the rate lies between {least:.1f} and {most:.1f} % with 95 % probability"
        )


def check_rate(rate: float) -> None:
    """Refuse rates outside (0, 1)."""
    expect(0 < rate < 1, "a false-alarm rate between 0 and 1", f"{rate:g}", do="try 0.05")


def calibrate(scores: ArrayLike, rate: float = 0.05) -> Calibration:
    """The lowest threshold whose false-alarm probability is at most `rate`."""
    check_rate(rate)
    false_alarm_at(0.0, inside=scores)  # raises if they are not finite numbers
    values = np.asarray(scores, dtype=np.float64)
    needed = math.ceil((1 / rate - 1) * (1 - SLACK))
    what = f"at least {needed} in-distribution images for a false-alarm rate of {rate:g}"
    more = "give more images or allow more false alarms"
    expect(values.size >= needed, what, values.size, do=more)
    rank = values.size + 1 - math.floor(rate * (values.size + 1) * (1 + SLACK))
    threshold = float(np.partition(values, rank - 1)[rank - 1])
    expect(math.isfinite(threshold), "finite scores to set a threshold by", threshold)
    rejected = int((values > threshold).sum())
    known = tuple(np.sort(values).tolist()) if np.isfinite(values).all() else ()
    return Calibration(
        rate=rate,
        n=values.size,
        rank=rank,
        threshold=threshold,
        rejected=rejected,
        scores=known,
    )
