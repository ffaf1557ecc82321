"""What an attacker wants, as a number to raise for each image: where attacks and detectors meet."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor

from rood.attacks.base import AnyGoal, Goal, as_goal
from rood.detectors.base import Detector, ScoreFunction
from rood.errors import CapabilityError
from rood.models.model import Network
from rood.numerics.softmax import margin_over, uniform_cross_entropy
from rood.shapes import Features, Images, Labels, Scores

__all__ = [
    "Encoder",
    "accepted_and_wrong",
    "both",
    "features",
    "flipped_and_right",
    "graphed",
    "look_in",
    "look_out",
    "match",
    "misclassify",
    "rejected",
]


def __dir__() -> list[str]:
    return __all__


CLASSES = 10  # up to so many, each class is aimed at by itself ...
MOST = 16  # ... of more, those that an image resembles most
NEAREST = 2  # the exemplars an image resembles most


Encoder: TypeAlias = Callable[[Images], Features]


def look_in(
    detector: Detector,
    exemplars: Images | None = None,
    *,
    past: Float[Tensor, " n"] | float = -math.inf,
) -> Goal:
    """The goal of an OOD image that wants to be missed: a low score.

    Attacks that take advice (`WorstOf`) also aim at one class after the other and at the features
    of ID exemplars, or at their pixels where the ball is so large that no gradient leads there.

    Parameters
    ----------
    detector : Detector
        Fitted.
    exemplars : Tensor of shape (n, c, h, w), optional
        ID images to resemble, such as those of the calibration split.
    past : Tensor or float
        Clean scores of ID images: an image below all of them is done, since its rank cannot fall.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> goal = rood.goals.look_in(rood.detectors.MSP(model))
    >>> attack, threat = rood.attacks.PGD(steps=5), rood.threat.Linf(4 / 255)
    >>> x_adv = attack(goal, x, threat, torch.Generator().manual_seed(0))
    >>> bool((goal(x_adv) > goal(x)).all())
    True
    """
    model = _network(detector)
    encoder, pixels = features(model), lambda x: detector.seen(x).flatten(1)

    @cache
    @torch.no_grad()
    def known(at_once: int) -> Images:
        assert exemplars is not None
        return _most_confident(detector, exemplars, at_once)

    def aim(x: Images) -> tuple[Goal, ...]:
        with torch.no_grad():
            out = model(x)
        k = detector.model.classes
        ranked = out.logits.topk(k if k <= CLASSES else min(k, MOST), dim=1).indices
        goals = [_negative(misclassify(model, y)) for y in ranked.unbind(dim=1)]
        goals.append(Goal(lambda x: model(x).logits.logsumexp(dim=1)))
        if exemplars is None:
            return tuple(goals)
        for one in _nearest(known(len(x)), encoder, x):
            goals.append(match(encoder, encoder(one)))
        for one in _nearest(known(len(x)), pixels, x):
            goals.append(match(pixels, pixels(one)).begin(one))
        return tuple(goals)

    return replace(_moved(detector, -1), aim=aim, enough=-float(torch.as_tensor(past).min()))


def look_out(detector: Detector, *, past: Float[Tensor, " n"] | float = math.inf) -> Goal:
    """The goal of an ID image that wants to be rejected: a high score.

    Attacks that take advice also aim away from its class, at the uniform softmax, and at zero
    features.

    Parameters
    ----------
    detector : Detector
        Fitted.
    past : Tensor or float
        Clean scores of OOD images: an image above all of them is done, since its rank cannot rise.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> energy = rood.detectors.Energy(model)
    >>> torch.equal(rood.goals.look_out(energy)(x), energy.score(x))
    True
    """
    model = _network(detector)

    def aim(x: Images) -> tuple[Goal, ...]:
        with torch.no_grad():
            out = model(x)
        return (
            misclassify(model, out.logits.argmax(dim=1)),
            Goal(lambda x: -uniform_cross_entropy(model(x).logits)),
            match(features(model), torch.zeros_like(out.features)),
        )

    return replace(_moved(detector, +1), aim=aim, enough=float(torch.as_tensor(past).max()))


def misclassify(model: Network, labels: Labels) -> Goal:
    """The goal of an image that wants any class but its own: the margin of all others over it.

    It rises with the cross-entropy and, unlike it, never saturates.

    Parameters
    ----------
    model : Model
        Or any function from images to `Outputs`.
    labels : Tensor of shape (n,)
        The true classes.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> labels = model(x).logits.argmax(dim=1)
    >>> torch.equal(rood.goals.misclassify(model, labels)(x), rood.detectors.MSP(model).score(x))
    True
    """
    return Goal(
        lambda x: margin_over(model(x).logits, labels),
        rows=lambda index: misclassify(model, labels[index]),
    )


def match(encoder: Encoder, codes: Features) -> Goal:
    """The goal of an image that wants given features: minus the squared distance from them.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> encoder = rood.goals.features(model)
    >>> rood.goals.match(encoder, encoder(x))(x).tolist()
    [-0.0, -0.0, -0.0, -0.0]
    """
    codes = codes.detach()
    return Goal(
        lambda x: -(encoder(x) - codes).square().sum(dim=1),
        rows=lambda index: match(encoder, codes[index]),
    )


def features(model: Network) -> Encoder:
    """The encoder whose code is the input of the head.

    Where that comes out of a ReLU, entries that are 0 have no gradient and stay unmatched;
    `rood.analysis.matching.layers` with the layer before the ReLU has a gradient everywhere.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> rood.goals.features(model)(x).shape
    torch.Size([4, 64])
    """
    return lambda x: model(x).features


def accepted_and_wrong(
    detector: Detector, labels: Labels, threshold: float, spread: float = 1.0
) -> Goal:
    """The goal of an ID image that wants to be misclassified and still accepted; above 0 it is.

    Parameters
    ----------
    detector : Detector
        Fitted.
    labels : Tensor of shape (n,)
        The true classes.
    threshold : float
        An image is accepted where its score is at most this.
    spread : float
        The detector's unit, such as the standard deviation of its scores on clean images.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> msp, labels = rood.detectors.MSP(model), model(x).logits.argmax(dim=1)
    >>> bool((rood.goals.accepted_and_wrong(msp, labels, threshold=0.0)(x) <= 0).all())
    True
    """
    return both(misclassify(_network(detector), labels), _below(detector, threshold, spread))


def flipped_and_right(
    detector: Detector, labels: Labels, threshold: float, spread: float = 1.0
) -> Goal:
    """The goal of an ID image that wants to be rejected while its class stays; above 0 it is.

    Takes the arguments of `accepted_and_wrong`.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> msp, labels = rood.detectors.MSP(model), model(x).logits.argmax(dim=1)
    >>> goal = rood.goals.flipped_and_right(msp, labels, threshold=0.0)
    >>> bool((goal(x) <= msp.score(x)).all())
    True
    """
    stays = _negative(misclassify(_network(detector), labels))
    return both(stays, _negative(_below(detector, threshold, spread)))


def rejected(detector: Detector, threshold: float) -> Goal:
    """The goal of an ID image that wants a false alarm at the deployed threshold, and no more.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> msp = rood.detectors.MSP(model)
    >>> goal = rood.goals.rejected(msp, threshold=2.0)
    >>> torch.equal(goal(x), msp.score(x) - 2.0)
    True
    """
    own = look_out(detector)
    return replace(
        own,
        function=lambda x: own(x) - threshold,
        enough=0.0,
    )


def both(first: Goal, second: Goal) -> Goal:
    """Two goals at once: their minimum, above 0 where both are; such an image is done.

    The minimum has the gradient of one at a time, so their sum is worth trying too.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> first, second = (rood.attacks.Goal(lambda x, i=i: model(x).logits[:, i]) for i in (0, 1))
    >>> torch.equal(rood.goals.both(first, second)(x), model(x).logits[:, :2].amin(dim=1))
    True
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
        lambda x: (threshold - detector.score_images(x)) / spread, stochastic=_varies(detector)
    )


def graphed(goal: AnyGoal, x: Images) -> Goal:
    """The goal recorded as a CUDA graph and replayed for batches of x's shape; others run as usual.

    The same kernels on the same numbers give the same values. It pays where launching a kernel
    takes longer than running it: PGD on a ResNet-18 takes 0.28 of its time for one image, 0.39 for
    16, 0.95 for 128 (one H200). A goal that waits for the GPU, draws random numbers or has no
    gradient to the pixels cannot be recorded.
    """
    own = as_goal(goal)
    if x.device.type != "cuda" or own.stochastic:
        what = "one that differs from call to call" if own.stochastic else f"images on {x.device}"
        raise CapabilityError(f"expected a fixed goal of images on a GPU to record, got {what}")
    like = x.detach().clone().requires_grad_()
    replay = cast(
        Callable[[Images], Scores], torch.cuda.make_graphed_callables(own.function, (like,))
    )

    def function(z: Images) -> Scores:
        # a copy: the next replay writes over what this one returns
        return replay(z).clone() if z.shape == like.shape else own(z)

    return replace(own, function=function)


def _network(detector: Detector) -> Network:
    """The network as the detector uses it: of images in the size in which it gets them."""
    return lambda x: detector.model(detector.seen(x))


def _varies(detector: Detector) -> bool:
    """Whether two calls may differ: by itself, or by a detector inside."""
    return detector.stochastic or any(_varies(inner) for _, inner in detector.inner())


@torch.no_grad()
def _most_confident(
    detector: Detector, exemplars: Images, at_once: int
) -> Float[Tensor, "n c h w"]:
    """The exemplar with the lowest score in each class that is predicted."""
    network = _network(detector)
    y = _in_parts(lambda x: network(x).logits.argmax(dim=1), exemplars, at_once)
    score = _in_parts(detector.score_images, exemplars, at_once)
    best = [torch.where(y == c, score, torch.inf).argmin() for c in y.unique()]
    return exemplars[torch.stack(best)]


@torch.no_grad()
def _nearest(
    known: Float[Tensor, "n c h w"], encoder: Encoder, x: Images
) -> tuple[Float[Tensor, "b c h w"], ...]:
    """For each image the known image with the nearest code, then the next one."""
    # pair by pair: by a matrix product the order would depend on the size of the batch
    codes = _in_parts(encoder, known, len(x))
    far = torch.cdist(encoder(x), codes, compute_mode="donot_use_mm_for_euclid_dist")
    near = far.topk(min(NEAREST, len(known)), largest=False).indices
    return known[near].unbind(dim=1)


def _in_parts(function: Callable[[Images], Tensor], x: Images, at_once: int) -> Tensor:
    """The function of no more images at once than are attacked: memory may hold no more."""
    return torch.cat([function(part) for part in x.split(at_once)])


def _moved(detector: Detector, sign: int) -> Goal:
    detector.check_fitted()

    def towards(score: ScoreFunction) -> Goal:
        return Goal(lambda x: sign * score(x), stochastic=_varies(detector))

    own = towards(detector.score_images)
    variants = tuple(towards(s) for s in detector.surrogates())
    return replace(own, variants=variants)
