"""Does the score follow its gradient?"""

from collections.abc import Sequence

import numpy as np

from rood.evaluation.checks.base import AttackedSet, Faults, ShareCheck, Wording


class UntrueGradient(ShareCheck):
    """Share of the control images at which the finite-difference slope along the gradient differs
    from the autograd slope by more than a quarter, at the clean image, half way to the attacked one
    or there, whichever is worst.

    The ratio of the two slopes is the cosine between autograd's gradient and the true one times
    the ratio of their lengths, in the direction that an attack takes. It finds a gradient that
    is masked, mixed with another or reversed. It does not find one that lacks a term orthogonal
    to the rest; `random_search_wins` and `more_steps_gain` do. At the attacked image it counts
    where the score has not risen for the attacker: a climb may well end on a ridge. A detector
    that is declared stochastic is not measured: two calls differ by more than two points.
    """

    place = 2
    warn, fail = 0.10, 0.25
    wording = Wording(
        title="The gradient is not the score's",
        because="the gradient does not tell how the score moves",
        meaning="On this share of the examined images, a small step along the gradient does not "
        "change the score as the gradient predicts: it belongs to another function, such as a "
        "backward pass of somebody's own, or it is masked.",
        advice="Look for rounding, noise, a detached graph, a torch.autograd.Function or a hook; "
        "attack a surrogate, or attack without gradients.",
        share=True,
    )

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        start, *others = (
            ~(np.abs(place - 1) <= 0.25)  # NaN is wrong too
            for place in (attacked.arrays["honesty"], *attacked.on_the_way("path_honesty"))
        )
        counted = (attacked.unfinished(), attacked.stuck())
        return [start, *(wrong & where for wrong, where in zip(others, counted, strict=False))]
