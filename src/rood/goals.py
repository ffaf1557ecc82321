"""What an attacker wants, as a number to raise for each image: where attacks and detectors meet."""

from dataclasses import replace
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from rood.attacks.base import Goal
from rood.detectors.base import Detector, ScoreFunction
from rood.matching import features, match
from rood.models.model import Model
from rood.shapes import Images, Labels
from rood.softmax import margin_over, uniform_cross_entropy

CLASSES = 3  # the classes an image resembles most, each aimed at by itself
NEAREST = 2  # the exemplars an image resembles most


def look_in(detector: Detector, exemplars: Images | None = None) -> Goal:
    """An OOD image asks for a low score: to be missed.

    It may also aim at one class after the other, or at the features of in-distribution exemplars.
    """
    model = detector.model
    codes = cache(lambda: None if exemplars is None else _most_confident(detector, exemplars))

    def aim(x: Images) -> tuple[Goal, ...]:
        with torch.no_grad():
            out = model(x)
        ranked = out.logits.topk(min(CLASSES, model.classes), dim=1).indices
        goals = [_negative(misclassify(model, y)) for y in ranked.unbind(dim=1)]
        goals.append(Goal(lambda x: model(x).logits.logsumexp(dim=1)))
        if (known := codes()) is not None:
            near = torch.cdist(out.features, known).topk(min(NEAREST, len(known)), largest=False)
            goals += [match(features(model), known[i]) for i in near.indices.unbind(dim=1)]
        return tuple(goals)

    return replace(_moved(detector, -1), aim=aim)


def look_out(detector: Detector) -> Goal:
    """An in-distribution image asks for a high score: to raise a false alarm.

    It may also aim away from its class, at the uniform softmax, or at features of no length.
    """
    model = detector.model

    def aim(x: Images) -> tuple[Goal, ...]:
        with torch.no_grad():
            out = model(x)
        return (
            misclassify(model, out.logits.argmax(dim=1)),
            Goal(lambda x: -uniform_cross_entropy(model(x).logits)),
            match(features(model), torch.zeros_like(out.features)),
        )

    return replace(_moved(detector, +1), aim=aim)


def misclassify(model: Model, labels: Labels) -> Goal:
    """An image asks for any class but its own: the margin of all others over it.

    It rises with the cross-entropy and, unlike it, never saturates.
    """
    return Goal(
        lambda x: margin_over(model(x).logits, labels),
        rows=lambda index: misclassify(model, labels[index]),
    )


def accepted_and_wrong(
    detector: Detector, labels: Labels, threshold: float, spread: float = 1.0
) -> Goal:
    """An in-distribution image asks to be misclassified and still accepted; above 0 it is both.

    `spread` is the detector's unit, such as the standard deviation of its scores on clean images.
    """
    return both(misclassify(detector.model, labels), _below(detector, threshold, spread))


def flipped_and_right(
    detector: Detector, labels: Labels, threshold: float, spread: float = 1.0
) -> Goal:
    """An in-distribution image asks to be rejected while its class stays; above 0 it is."""
    stays = _negative(misclassify(detector.model, labels))
    return both(stays, _negative(_below(detector, threshold, spread)))


def rejected(detector: Detector, threshold: float) -> Goal:
    """An in-distribution image asks for a false alarm at the deployed threshold, and no more."""
    own = look_out(detector)
    return replace(
        own,
        function=lambda x: own(x) - threshold,
        enough=0.0,
    )


def both(first: Goal, second: Goal) -> Goal:
    """Two goals at once: their minimum, above 0 where both are; enough then.

    The minimum has the gradient of one at a time, so their sum is worth trying too.
    """
    return Goal(
        lambda x: torch.minimum(first(x), second(x)),
        variants=(_sum(first, second), first, second),
        enough=0.0,
        stochastic=first.stochastic or second.stochastic,
        rows=lambda index: both(first.take(index), second.take(index)),
    )


def _sum(first: Goal, second: Goal) -> Goal:
    return Goal(
        lambda x: first(x) + second(x),
        rows=lambda index: _sum(first.take(index), second.take(index)),
    )


def _negative(goal: Goal) -> Goal:
    rows = goal.rows
    return Goal(
        lambda x: -goal(x),
        stochastic=goal.stochastic,
        rows=None if rows is None else lambda index: _negative(rows(index)),
    )


def _below(detector: Detector, threshold: float, spread: float) -> Goal:
    detector.check_fitted()
    return Goal(
        lambda x: (threshold - detector.score_images(x)) / spread, stochastic=detector.stochastic
    )


@torch.no_grad()
def _most_confident(detector: Detector, exemplars: Images) -> Float[Tensor, "n d"]:
    """The features of the exemplar with the lowest score in each class that is predicted."""
    out, score = detector.model(exemplars), detector.score_images(exemplars)
    y = out.logits.argmax(dim=1)
    best = [torch.where(y == c, score, torch.inf).argmin() for c in y.unique()]
    return out.features[torch.stack(best)]


def _moved(detector: Detector, sign: int) -> Goal:
    detector.check_fitted()

    def towards(score: ScoreFunction) -> Goal:
        return Goal(lambda x: sign * score(x), stochastic=detector.stochastic)

    own = towards(detector.score_images)
    variants = tuple(towards(s) for s in detector.surrogates())
    return replace(own, variants=variants)
