"""Was the deployed score itself climbed?"""

from collections.abc import Sequence

from rood.evaluation.checks.base import AttackedSet, Faults, ShareCheck, Wording


class BaseOnly(ShareCheck):
    """Share of the images that gained at least nine tenths on another function than the deployed
    score.

    rood always hands the whole pipeline to the attack (ODIN, PRO, low resolution and layered
    Mahalanobis with their steps on pixels), so this fires where the pipeline could not be
    climbed and only its base or a surrogate was. Results from elsewhere whose points were
    crafted for the base should carry it as a failure.
    """

    place = 13
    warn, fail = 0.10, 0.50
    needs = "again"
    wording = Wording(
        title="The deployed score itself was not climbed",
        because="only a surrogate of the deployed score was really attacked",
        meaning="On this share of the images, nearly all of the gain was found on another "
        "function, such as the base of a detector that wraps another. Points crafted for the base "
        "overstate how robust the whole pipeline is.",
        advice="Attack the pipeline as deployed: use straight-through gradients (BPDA) for steps "
        "without one, smooth them in a surrogate, or add an attack by queries (square, "
        "random_search).",
        share=True,
    )

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        direct, gained = attacked.gains()
        return [(gained > 0) & (direct <= 0.1 * gained)]
