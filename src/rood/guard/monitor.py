"""Watching a stream: do its images still come from where the calibration images came from?"""

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from rood.errors import InputError, expect
from rood.guard.calibration import calibrate
from rood.guard.guard import Guard
from rood.shapes import Images

# share of OOD images that a bet is made for, and the p-value that most of them stay below
BETS = tuple((share, level) for share in (0.03, 0.2, 0.7) for level in (0.01, 0.05, 0.2))


class Reading(NamedTuple):
    """What a monitor says after one image."""

    number: int  # of the image in the stream, from 1
    score: float
    accept: bool  # by the guard's threshold
    p: float  # evenly distributed while the stream is in-distribution
    evidence: float  # grows by 1 an image on average then; an alarm at `arl`
    alarm: bool


@dataclass
class Monitor:
    r"""R_t = mean_k R_t^k, R_t^k = (1 + R_{t-1}^k) f_k(p_t); an alarm where R_t >= arl.

    p_t is the conformal p-value of image t against the calibration images and the stream before it,
    with ties broken at random: while all of them are exchangeable, the p_t are independent and
    uniform, for every detector and network. The bets f_k(p) = 1 - w + (w / a) [p <= a] have mean 1
    then, so R_t - t is a martingale (Shiryaev-Roberts): the average number of images until the
    first alarm is at least `arl`, and n images raise one with probability n / arl at most. Vovk et
    al., *Retrain or not retrain: conformal test martingales for change-point detection*,
    arXiv:2102.10439.

    After an alarm the evidence starts again, and the stream so far is forgotten. The guarantee is
    for the first alarm, and until images are confirmed.

    Parameters
    ----------
    guard : Guard
        With the scores of its calibration images.
    arl : float
        Average run length: images until a false alarm, on average, at least.
    seed : int
        Breaks ties.

    Raises
    ------
    InputError
        If the guard has no calibration scores: it was written by an earlier version, or some of
        them were infinite.

    Examples
    --------
    >>> import rood, torch
    >>> from rood import data
    >>> from rood.detectors import MSP
    >>> from rood.guard import Monitor
    >>> images = data.load("procedural:blobs,n=100", shape=(1, 28, 28))
    >>> guard = rood.Guard.calibrated(MSP(rood.zoo.load("digits-ce")), images.batches(50))
    >>> monitor = Monitor(guard, arl=1000)
    >>> noise = torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> readings = monitor.see(noise)
    >>> len(readings), readings[0].number
    (40, 1)
    """

    guard: Guard
    arl: float = 10_000
    seed: int = 0
    seen: int = field(default=0, init=False)
    alarms: list[int] = field(default_factory=list, init=False)  # the images that raised one
    confirmed: list[float] = field(default_factory=list, init=False)  # scores of images known as ID
    _bets: list[float] = field(default_factory=list, init=False, repr=False)
    _known: list[float] = field(default_factory=list, init=False, repr=False)  # sorted scores

    def __post_init__(self) -> None:
        expect(self.arl > 1, "an average run length above 1 image", f"{self.arl:g}")
        if not self.guard.calibration.scores:
            raise InputError(
                "expected a guard with finite scores of its calibration images, got one of an "
                "earlier version of rood, or with infinite scores: fit it again"
            )
        self._draws = np.random.default_rng(self.seed)
        self._restart()

    def see(self, x: Images) -> list[Reading]:
        """Add images in the order in which they came."""
        decision = self.guard(x)
        return [self.add(score) for score in decision.score.double().tolist()]

    def add(self, score: float) -> Reading:
        """Add one image by its score; NaN counts as the most OOD score there is."""
        value = _ordered(score)
        p = self._p_value(value)
        self._bets = [(1 + r) * bet(p, *b) for r, b in zip(self._bets, BETS, strict=True)]
        evidence = sum(self._bets) / len(BETS)
        self.seen += 1
        alarm = evidence >= self.arl
        if alarm:
            self.alarms.append(self.seen)
            self._restart()
        else:
            insort(self._known, value)
        accept = score <= self.guard.threshold
        return Reading(self.seen, score, accept, p, evidence, alarm)

    def confirm(self, x: Images) -> None:
        """Say that these images are in-distribution: somebody looked. They join the calibration
        images, and the evidence starts again.
        """
        self.confirmed += map(_ordered, self.guard(x).score.double().tolist())
        self._restart()

    def recalibrated(self) -> Guard:
        """The guard with its threshold set on the calibration and the confirmed images."""
        found = calibrate(self._calibration(), self.guard.calibration.rate)
        return replace(self.guard, calibration=found)

    def _calibration(self) -> list[float]:
        return [*self.guard.calibration.scores, *self.confirmed]

    def _restart(self) -> None:
        self._known = sorted(self._calibration())
        self._bets = [0.0] * len(BETS)

    def _p_value(self, score: float) -> float:
        first, last = bisect_left(self._known, score), bisect_right(self._known, score)
        beyond, equal = len(self._known) - last, last - first + 1
        return (beyond + (1 - self._draws.random()) * equal) / (len(self._known) + 1)


def _ordered(score: float) -> float:
    """NaN as the most OOD score there is."""
    return math.inf if math.isnan(score) else score


def bet(p: float, share: float, level: float) -> float:
    """1 - share + share / level where p <= level: its mean over p in [0, 1] is 1."""
    return 1 - share + (share / level if p <= level else 0.0)
