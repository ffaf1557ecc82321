"""The goals of the papers' own attacks, kept as published to reproduce tables.

None of them is the detector's own score: to judge a detector use `rood.goals`.
"""

import torch
from torch.nn import functional

from rood.attacks.base import Goal
from rood.detectors.layered_mahalanobis import LayeredMahalanobis
from rood.models.model import Model
from rood.numerics.softmax import log_entropy, uniform_cross_entropy
from rood.shapes import Images, Labels, Scores


def aloe_confidence(model: Model, inside: bool) -> Goal:
    r"""Algorithm 1: ID images are moved to a uniform softmax, OOD images to a one-hot one.

    ID: mean(z) - lse(z); OOD: -log H(p), whose gradient has the direction of that of the paper's
    -H(p) but does not vanish. Chen et al., *Robust Out-of-distribution Detection for Neural
    Networks*, arXiv:2003.09711, attack every softmax detector with it: the attack on ODIN there
    ignores its temperature and its step.
    """
    if inside:
        return Goal(lambda x: -uniform_cross_entropy(model(x).logits))
    return Goal(lambda x: -log_entropy(model(x).logits))


def aloe_mahalanobis(detector: LayeredMahalanobis, inside: bool) -> Goal:
    r"""Algorithm 2: ID raises -log p, OOD -log(1 - p), p = 1 / (1 + e^s) the probability of ID.

    Both are monotone in the regression's logit s, which is the goal here, since it does not
    saturate. As in the paper, s is that of the image itself, without the step `eta` that the
    detector takes before it scores.
    """
    logit = _without_step(detector)
    sign = 1 if inside else -1
    return Goal(lambda x: sign * logit.score_images(x))


def aloe_mahalanobis_official(detector: LayeredMahalanobis, inside: bool) -> Goal:
    r"""Algorithm 2 as coded: the cross-entropy of softmax(1 - q, q), q = 1 / (1 + e^-s).

    Probabilities are used as logits, in float32. Where an image is accepted with certainty, the
    gradient is 0 (s < -51) or NaN (s < -89), and the attack does not move it.
    """
    logit = _without_step(detector)

    def loss(x: Images) -> Scores:
        s = logit.score_images(x).float()
        q = 1 / (1 + torch.exp(-s))  # not torch.sigmoid, whose gradient is never NaN
        label = torch.full_like(s, 0 if inside else 1, dtype=torch.long)
        squashed = torch.stack([1 - q, q], dim=1)
        return functional.cross_entropy(squashed, label, reduction="none").to(x.dtype)

    return Goal(loss)


def cross_entropy(model: Model, labels: Labels) -> Goal:
    """Misclassification: -log p_y, whose gradient vanishes where p_y is 1.

    The attack on classifiers in Chen et al.; `rood.goals.misclassify` does not saturate.
    """
    return Goal(
        lambda x: functional.cross_entropy(model(x).logits, labels, reduction="none"),
        rows=lambda index: cross_entropy(model, labels[index]),
    )


def _without_step(detector: LayeredMahalanobis) -> LayeredMahalanobis:
    """The same regression without the step on the image."""
    fitted = detector.fitted_state()
    return LayeredMahalanobis(detector.model, layers=detector.layers).load_fitted(fitted)
