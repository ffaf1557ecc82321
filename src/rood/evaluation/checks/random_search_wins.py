"""Does the attack beat random search?"""

import numpy as np

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class RandomSearchWins(SetCheck):
    """Share of the control images on which the best of 50 random points moved the score further
    than the attack did.
    """

    place = 3
    warn, fail = 0.02, 0.10
    wording = Wording(
        title="Random search wins",
        because="random search beat the attack",
        meaning="On this share of the images, random changes did better than the attack: the "
        "gradient is misleading (masked), and the attacked numbers are too high.",
        advice="Give the attack more steps and restarts, let it climb a surrogate, or use "
        "worst_of.",
        share=True,
    )

    def measure(self, attacked: AttackedSet) -> float:
        before = attacked.values("control_before")
        random, attack = (attacked.values(name) - before for name in ("control", "control_after"))
        scale = np.abs(attack).mean() + 1e-12
        return float(np.mean(random > attack + 1e-4 * scale))
