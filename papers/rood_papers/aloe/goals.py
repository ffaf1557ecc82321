"""What the papers' own attackers raise, kept as published to reproduce tables.

To judge a detector use `rood.goals`: its own score, which nothing here is.
"""

import torch
from torch.nn import functional

from rood.attacks.base import Goal
from rood.detectors.layered_mahalanobis import LayeredMahalanobis
from rood.models.model import Model
from rood.numerics.softmax import log_entropy, uniform_cross_entropy
from rood.shapes import Images, Labels, Scores


def aloe_confidence(model: Model, inside: bool) -> Goal:
    r"""Algorithm 1: in-distribution images ask for a uniform softmax, OOD images for a one-hot.

    inside: mean(z) - lse(z); outside: -log H(p), whose gradient points where that of the paper's
    -H(p) does and lives on where that one dies. Chen et al., *Robust Out-of-distribution Detection
    for Neural Networks*, arXiv:2003.09711, attack every softmax detector with it: what ODIN judges
    there was made without its temperature and its step.
    """
    if inside:
        return Goal(lambda x: -uniform_cross_entropy(model(x).logits))
    return Goal(lambda x: -log_entropy(model(x).logits))


def aloe_mahalanobis(detector: LayeredMahalanobis, inside: bool) -> Goal:
    r"""Algorithm 2: inside raises -log p, outside -log(1 - p), p = 1 / (1 + e^s) being inside.

    Both are monotone in the regression's logit s, which is what moves here: unlike them it does not
    saturate. As in the paper, s is that of the image itself, without the step `eta` that the
    detector then takes when it judges.
    """
    logit = _without_step(detector)
    sign = 1 if inside else -1
    return Goal(lambda x: sign * logit.score_images(x))


def aloe_mahalanobis_official(detector: LayeredMahalanobis, inside: bool) -> Goal:
    r"""Algorithm 2 as coded: the cross-entropy of softmax(1 - q, q), q = 1 / (1 + e^-s).

    Probabilities stand where logits should, in float32. Of an image that is accepted with certainty
    the gradient is 0 (s < -51) or NaN (s < -89), and the attack leaves it where it is.
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
    """An image asks for any class but its own: -log p_y, whose gradient dies where p_y is 1.

    The attack on classifiers in Chen et al.; `rood.goals.misclassify` is the same without that.
    """
    return Goal(
        lambda x: functional.cross_entropy(model(x).logits, labels, reduction="none"),
        rows=lambda index: cross_entropy(model, labels[index]),
    )


def _without_step(detector: LayeredMahalanobis) -> LayeredMahalanobis:
    """The same regression of the image itself."""
    fitted = detector.fitted_state()
    return LayeredMahalanobis(detector.model, layers=detector.layers).load_fitted(fitted)
