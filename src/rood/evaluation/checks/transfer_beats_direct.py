"""Does a surrogate lead further than the score itself?"""

import math
from collections.abc import Sequence

from rood.evaluation.checks.base import (
    AttackedSet,
    Case,
    Faults,
    ShareCheck,
    Verdict,
    Wording,
    typical,
)


class TransferBeatsDirect(ShareCheck):
    """Share of the images whose score moved further at a point found for another function (a
    surrogate) than at the point found for the score itself, by more than a tenth of the mean
    gain.

    It passes where nothing else leads further still: see `too_good`.
    """

    place = 12
    warn, fail = 0.10, math.inf
    needs = "again"
    wording = Wording(
        title="A surrogate leads further",
        because="attacking a surrogate led further than attacking the score",
        meaning="On this share of the images, climbing a surrogate raised the score clearly more "
        "than climbing the score itself: its own gradient is partly masked. The number includes "
        "the better points, and depends on how good the surrogate is.",
        advice="Give the detector more surrogates, or use worst_of, which tries many ways.",
        share=True,
    )

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        direct, gained = attacked.gains()
        return [gained > direct + 0.1 * typical(gained)]

    def verdict(self, value: float, case: Case) -> Verdict:
        return "pass" if case.unbeaten() else super().verdict(value, case)
