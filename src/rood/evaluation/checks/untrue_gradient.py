"""Does the score follow its gradient?"""

import numpy as np

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class UntrueGradient(SetCheck):
    """Share of the control images at which the finite-difference slope along the gradient differs
    from the autograd slope by more than a quarter.

    The ratio of the two slopes is the cosine between autograd's gradient and the true one times
    the ratio of their lengths, in the direction that an attack takes. It finds a gradient that
    is masked, mixed with another or reversed. It does not find one that lacks a term orthogonal
    to the rest; `random_search_wins` and `more_steps_gain` do. A score with many kinks (KNN) may
    warn although its gradient is exact almost everywhere.
    """

    place = 2
    warn, fail = 0.25, 0.50
    wording = Wording(
        title="The gradient is not the score's",
        because="the gradient does not tell how the score moves",
        meaning="On this share of the examined images, a small step along the gradient does not "
        "change the score as the gradient predicts: it belongs to another function, or it is "
        "masked.",
        advice="Look for rounding, noise or a detached graph; attack a surrogate, or attack "
        "without gradients.",
        share=True,
    )

    def measure(self, attacked: AttackedSet) -> float:
        wrong = ~(np.abs(attacked.arrays["honesty"] - 1) <= 0.25)  # NaN is wrong too
        return float(np.mean(wrong))
