"""What an attacker wants, as a number to raise for each image: where attacks and detectors meet."""

from rood.attacks.base import Goal
from rood.detectors.base import Detector, ScoreFunction
from rood.models.model import Model
from rood.shapes import Labels
from rood.softmax import margin_over


def look_in(detector: Detector) -> Goal:
    """An OOD image asks for a low score: to be missed."""
    return _moved(detector, -1)


def look_out(detector: Detector) -> Goal:
    """An in-distribution image asks for a high score: to raise a false alarm."""
    return _moved(detector, +1)


def misclassify(model: Model, labels: Labels) -> Goal:
    """An image asks for any class but its own: the margin of all others over it.

    It rises with the cross-entropy and, unlike it, never saturates.
    """
    return Goal(lambda x: margin_over(model(x).logits, labels))


def _moved(detector: Detector, sign: int) -> Goal:
    detector.check_fitted()

    def towards(score: ScoreFunction) -> Goal:
        return Goal(lambda x: sign * score(x), stochastic=detector.stochastic)

    own = towards(detector.score_images)
    variants = tuple(towards(s) for s in detector.surrogates())
    return Goal(own.function, variants=variants, stochastic=detector.stochastic)
