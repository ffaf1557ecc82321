"""Does the score come back on the way back?"""

from collections.abc import Sequence

import numpy as np

from rood.evaluation.checks.base import AttackedSet, Faults, ShareCheck, Wording

NEARLY = 0.75  # of the fall: what an equal optimum regains


class ManyOptima(ShareCheck):
    """Share of the control images at which the score falls by at least the attack's gain, and then
    regains three quarters of it, on two ways back from the attacked image: all pixels, or a
    random half of them, move towards the clean image and past it, at the same speed, up to eps, in
    17 steps.

    On the way back an honest score falls to about that of the clean image and stays there. One with
    a period below the budget passes optima as high as the one at which the attack stopped: there
    are too many to try, and neither more steps nor queries tell. Images that have reached what is
    enough do not count. A detector that is declared stochastic is not measured: two calls differ by
    more than two points.
    """

    place = 4
    warn, fail = 0.25, 0.40
    needs = "regained"
    wording = Wording(
        title="Many optima within the budget",
        because="the attack stopped at one of many optima",
        meaning="On this share of the examined images, another optimum as high as the one that the "
        "attack found lies behind a valley on the way back to the clean image. The score "
        "is periodic within the budget, attacks stop at the nearest of many optima, and the "
        "attacked numbers are too high.",
        advice="Look for a periodic term (sine, modulo, a lattice of pixel values) in the "
        "preprocessing, network or score, and attack a surrogate without it.",
        share=True,
    )

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        found: Faults = np.all(attacked.arrays["regained"] >= NEARLY, axis=1)
        return [found & attacked.unfinished()]
