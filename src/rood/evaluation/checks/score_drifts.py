"""Does the detector remember?"""

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class ScoreDrifts(SetCheck):
    """Mean distance between the scores of the same clean images when they were first measured,
    just before the attack and just after it, in standard deviations of the set's clean scores, less
    what two calls differ; the larger of the two steps counts.
    """

    place = 10
    warn, fail = 0.001, 0.05
    needs = "later"
    wording = Wording(
        title="The score drifts",
        because="the same image gets another score later",
        meaning="Between the clean measurement, the beginning of the attack and its end, the score "
        "of the same images moves by this much of the spread of all scores: the detector "
        "remembers what it was asked. Clean and attacked scores are then not those of one "
        "detector.",
        advice="Keep state out of the score (query counters, running statistics, caches), or set "
        "it back before each call; defences that watch queries need another threat model.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        before, later, apart, again = (
            attacked.arrays[name] for name in ("before", "later", "apart", "again")
        )
        step = max(attacked.moved(attacked.clean, before), attacked.moved(before, later))
        return max(0.0, step - 2 * attacked.moved(apart, again))
