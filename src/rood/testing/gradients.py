"""What the path from pixels to score must keep, so that a detector can be attacked."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from rood.detectors.base import ScoreFunction
from rood.seeds import generator
from rood.testing._support import (
    DetectorCheck,
    DetectorFactory,
    build,
    class_of,
    require,
    scores,
)
from rood.testing.world import World

H = 1e-6  # half the finite difference, in pixels
SHARP = 50  # what the logits are multiplied by


def gradient_checks(factory: DetectorFactory) -> Iterator[DetectorCheck]:
    """By the kind of gradient that the class declares."""
    cls = class_of(factory)
    yield check_surrogates_are_differentiable
    if cls.gradient in ("exact", "almost_everywhere"):
        if not cls.stochastic:
            yield check_gradient_matches_finite_differences
        yield check_does_not_saturate


def check_gradient_matches_finite_differences(factory: DetectorFactory, world: World) -> None:
    """Finds .data, .detach(), numpy and no_grad anywhere between x and the score."""
    w = world.double()
    d = build(factory, w)
    x = torch.cat([w.inside[:10], w.outside[:10]]).clamp(0.01, 0.99)
    gradient = _gradient(d.score, x)
    needed = 1.0 if class_of(factory).gradient == "exact" else 0.9
    for draw in range(2):
        v = torch.randn(x.shape, generator=generator(draw, "direction"), dtype=x.dtype)
        v = v / v.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        slope = (gradient * v).flatten(1).sum(dim=1)
        measured = (scores(d, x + H * v) - scores(d, x - H * v)) / (2 * H)
        scale = measured.abs().median()
        right = (slope - measured).abs() <= 1e-3 * measured.abs() + 1e-4 * scale
        share = right.double().mean().item()
        wrong = int((slope - measured).abs().argmax())
        require(
            share >= needed,
            f"the gradient is right for {share:.0%} of the images: autograd gives "
            f"{slope[wrong]:.6g} where the score changes by {measured[wrong]:.6g} a pixel",
        )


def check_surrogates_are_differentiable(factory: DetectorFactory, world: World) -> None:
    """Each gives one finite number an image, with and without autograd, and a finite gradient."""
    d = build(factory, world)
    x = torch.cat([world.inside[:8], world.outside[:8]])
    functions = d.surrogates()
    if class_of(factory).gradient == "surrogate":
        require(functions, "gradient = 'surrogate' is declared, but surrogates() is empty")
    for i, function in enumerate(functions):
        which = f"surrogate {i}"
        with torch.no_grad():
            value = function(x)
        require(value.shape == (len(x),), f"{which} gives {tuple(value.shape)} for {len(x)} images")
        require(value.dtype == x.dtype, f"{which} gives {value.dtype} for {x.dtype} images")
        require(value.isfinite().all(), f"{which} is not finite")
        gradient = _gradient(function, x, which)
        require(gradient.isfinite().all(), f"the gradient of {which} is not finite")
        alive = (gradient.flatten(1) != 0).any(dim=1).double().mean().item()
        require(alive >= 0.5, f"the gradient of {which} is zero for {1 - alive:.0%} of the images")


def check_does_not_saturate(factory: DetectorFactory, world: World) -> None:
    """With logits 50 times as sharp: hardly a gradient dies, and no two images tie."""
    w = world.copy()
    with torch.no_grad():
        for p in w.model.head.parameters():
            p.mul_(SHARP)
    d = build(factory, w)
    x = torch.cat([w.inside, w.outside])
    gradient = _gradient(d.score, x)
    require(gradient.isfinite().all(), f"the gradient is not finite at logits x {SHARP}")
    alive = (gradient.flatten(1) != 0).any(dim=1).double().mean().item()
    require(
        alive >= 0.99,
        f"the gradient is zero for {1 - alive:.0%} of the images at logits x {SHARP}: "
        "give the score in a form that does not saturate",
    )
    ties = len(x) - len(scores(d, x).unique())
    require(ties == 0, f"{ties} of {len(x)} different images tie at logits x {SHARP}")


def _gradient(function: ScoreFunction, x: Tensor, which: str = "the score") -> Tensor:
    x = copy.deepcopy(x.detach()).requires_grad_()
    value = function(x)
    require(value.requires_grad, f"{which} is cut off from the pixels: no gradient reaches them")
    (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
    require(gradient is not None, f"{which} is cut off from the pixels: no gradient reaches them")
    return gradient
