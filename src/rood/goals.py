"""What an attacker wants, as a number to raise for each image: where attacks and detectors meet."""

from torch.nn.functional import cross_entropy

from rood.attacks.base import Goal
from rood.detectors.base import Detector, ScoreFunction
from rood.models.model import Model
from rood.shapes import Labels


def look_in(detector: Detector) -> Goal:
    """An OOD image asks for a low score: to be missed."""
    return _moved(detector, -1)


def look_out(detector: Detector) -> Goal:
    """An in-distribution image asks for a high score: to raise a false alarm."""
    return _moved(detector, +1)


def misclassify(model: Model, labels: Labels) -> Goal:
    """An image asks for any class but its own."""
    return Goal(lambda x: cross_entropy(model(x).logits, labels, reduction="none"))


def _moved(detector: Detector, sign: int) -> Goal:
    detector.check_fitted()

    def towards(score: ScoreFunction) -> Goal:
        return Goal(lambda x: sign * score(x), stochastic=detector.stochastic)

    own = towards(detector.score_images)
    variants = tuple(towards(s) for s in detector.surrogates())
    return Goal(own.function, variants=variants, stochastic=detector.stochastic)
