"""Is the score the same each time?"""

from rood.evaluation.checks.base import AttackedSet, SetCheck, Verdict, Wording


class TwoCallsDiffer(SetCheck):
    """Mean distance between two scores of the same image in the same batch, in standard deviations
    of the set's clean scores.

    A detector that is declared stochastic is judged by means over 16 calls, here and in the other
    checks; it warns where two such means differ by a quarter of a standard deviation, and never
    fails.
    """

    place = 9
    warn, fail = 0.001, 0.05
    needs = "again"
    wording = Wording(
        title="Two calls differ",
        because="the same image gets another score each time",
        meaning="Between two calls, the score of the same image moves by this much of the spread "
        "of all scores. An attack that keeps its best try then keeps a lucky one, and its "
        "gradient is that of another draw.",
        advice="Turn dropout and other noise off (eval mode); or declare the detector "
        "stochastic, so that worst_of attacks the mean of several draws, and report several "
        "seeds.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        return attacked.moved(attacked.arrays["apart"], attacked.arrays["again"])

    def grade(self, attacked: AttackedSet) -> Verdict:
        if attacked.stochastic:
            return "warn" if self.measure(attacked) > 0.25 else "pass"
        return super().grade(attacked)
