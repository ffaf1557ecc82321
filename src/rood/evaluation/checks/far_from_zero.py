"""Does an attack without a limit win?"""

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording, auroc_left


class FarFromZero(SetCheck):
    """AUROC under an attack that may use the whole pixel range.

    Such an attacker may send an image of the other side and continue from there: 20 steps of APGD
    move 8 of these, and their scores are compared with those before. 0.5 means that nothing moved,
    0.25 that half of them did not; a correct gradient gets below 0.25, mostly to 0. The climb
    starts at the other side because from the image itself even hundreds of steps are too few for
    a robust network, which would then look masked. It is measured once and counts for every eps
    of its norm. Attacks by few queries fail it, rightly.
    """

    place = 16
    warn, fail = 0.25, 0.40
    needs = "far"
    wording = Wording(
        title="Not beaten without a limit",
        because="even an attack without a limit does not win",
        meaning="An attacker with an unlimited budget may start at an image of the other side and "
        "continue from there; the AUROC should then fall to 0, but stays at this value (0.5: "
        "nothing moved). The attack cannot climb this score at any budget.",
        advice="Look for a flat, clipped or rounded score; give the detector a surrogate, or "
        "attack it without gradients.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        far, start = (attacked.up(attacked.arrays[name]) for name in ("far", "far_start"))
        return auroc_left(far, start)
