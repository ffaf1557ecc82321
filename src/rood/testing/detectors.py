"""What every detector must keep, as checks that run on any of them, yours included.

for check in detector_checks(MyDetector):
    check(MyDetector, toy_world())
"""

import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

import torch

from rood.detectors import score_all
from rood.detectors.base import Detector, Gradient
from rood.detectors.msp import MSP
from rood.errors import InputError, NotFittedError
from rood.metrics import auroc
from rood.registry import paper
from rood.testing._support import (
    DetectorCheck,
    DetectorFactory,
    build,
    class_of,
    no_trace,
    require,
    require_close,
    require_error,
    scores,
)
from rood.testing.fitting import fitting_checks
from rood.testing.gradients import gradient_checks
from rood.testing.world import World


def detector_checks(factory: DetectorFactory) -> Iterator[DetectorCheck]:
    """Every check that applies to the class, by what it declares of itself."""
    yield check_gives_one_finite_score_per_image
    yield check_scores_ood_higher
    yield check_leaves_everything_as_it_was
    yield check_refuses_what_is_not_an_image
    yield check_complains_before_fit
    yield check_gives_no_scores_for_no_images
    yield check_docstring_gives_formula_and_source
    yield check_hyperparameters_are_keywords_with_defaults
    yield check_declares_gradient_and_cost
    yield from fitting_checks(factory)
    yield from gradient_checks(factory)
    if not class_of(factory).stochastic:
        yield check_is_deterministic
        yield check_scores_each_image_on_its_own
        yield check_scores_alike_without_autograd
        yield check_scores_alike_among_others
        if torch.cuda.is_available():
            yield check_scores_alike_on_cuda


def check_gives_one_finite_score_per_image(factory: DetectorFactory, world: World) -> None:
    """Shape (b,), the dtype of the images, no NaN and no infinity; in float32 and float64."""
    for w in (world, world.double()):
        d = build(factory, w)
        for side, x in (("inside", w.inside), ("outside", w.outside)):
            s = d.score(x)
            require(s.shape == (len(x),), f"expected {len(x)} scores, got {tuple(s.shape)}")
            require(s.dtype == x.dtype, f"expected the images' {x.dtype}, got {s.dtype}")
            require(s.isfinite().all(), f"{(~s.isfinite()).sum()} scores {side} are not finite")


def check_scores_ood_higher(factory: DetectorFactory, world: World) -> None:
    """On an easy problem, where only a turned sign or a broken score fails."""
    d = build(factory, world)
    a = auroc(inside=scores(d, world.inside), outside=scores(d, world.outside))
    require(a > 0.7, f"AUROC {a:.3f} on an easy problem: is the sign turned round?")


def check_leaves_everything_as_it_was(factory: DetectorFactory, world: World) -> None:
    """Input, weights, batch-norm statistics, modes, gradients, hooks and global randomness."""
    d = build(factory, world)
    x = world.inside[:8].clone()
    with no_trace("score()", d, x=x):
        d.score(x)
    x.requires_grad_()
    with no_trace("score() with gradient", d, x=x):
        s = d.score(x)
        if s.requires_grad:
            torch.autograd.grad(s.sum(), x)
    with no_trace("fit()", d.model, x=world.train[0][0], y=world.train[0][1]):
        d.fit(world.train)


def check_refuses_what_is_not_an_image(factory: DetectorFactory, world: World) -> None:
    """Pixels outside [0, 1], NaN, another rank, dtype or device: each with an InputError."""
    d = build(factory, world)
    x = world.inside[:4]
    hole = x.clone()
    hole[0, 0, 0, 0] = torch.nan
    wrong = {
        "normalised pixels": (x - 0.5) / 0.25,
        "pixels up to 255": x * 255,
        "a NaN pixel": hole,
        "one image without a batch axis": x[0],
        "a batch of batches": x[None],
        "float64 images for float32 weights": x.double(),
        "whole numbers": (x * 255).to(torch.uint8),
        "images on another device": x.to("meta"),
    }
    for what, images in wrong.items():
        require_error(InputError, partial(d.score, images), what)


def check_complains_before_fit(factory: DetectorFactory, world: World) -> None:
    """Where there is something to learn, score() before fit() is an error."""
    d = build(factory, world, fit=False)
    if any(part.fitted_names for part in d.modules() if isinstance(part, Detector)):
        require_error(NotFittedError, lambda: d.score(world.inside), "score() before fit()")


def check_gives_no_scores_for_no_images(factory: DetectorFactory, world: World) -> None:
    """An empty batch gives an empty vector."""
    d = build(factory, world)
    try:
        s = d.score(world.inside[:0])
    except Exception as e:
        raise AssertionError(f"an empty batch gives an error: {e}") from e
    require(s.shape == (0,), f"expected shape (0,) for an empty batch, got {tuple(s.shape)}")
    require(s.dtype == world.inside.dtype, f"expected the images' dtype, got {s.dtype}")


def check_docstring_gives_formula_and_source(factory: DetectorFactory, world: World) -> None:
    """The class says what it computes and where that comes from."""
    doc = class_of(factory).__doc__ or ""
    require("s(x) =" in doc, "state the score in the docstring as `s(x) = ...`, higher = more OOD")
    require(
        bool(paper(class_of(factory))),
        "cite the paper in the docstring: arXiv:..., doi:..., openreview:... or thecvf:...",
    )


def check_hyperparameters_are_keywords_with_defaults(
    factory: DetectorFactory, world: World
) -> None:
    """Model or parts first, then keywords with defaults, stored by name and ready for JSON."""
    cls = class_of(factory)
    makers: list[Callable[..., object]] = [cls, factory]
    for f in makers:
        for p in list(inspect.signature(f).parameters.values())[1:]:
            require(p.kind is p.KEYWORD_ONLY, f"make {p.name!r} keyword-only, after a `*`")
            usable = p.default is not p.empty or hasattr(cls, "example")
            require(usable, f"give {p.name!r} a default, or the class an example(model)")
    d = build(factory, world, fit=False)
    try:
        json.dumps(d.settings())
    except AttributeError as e:
        raise AssertionError(f"store every argument under its own name: {e}") from e
    except TypeError as e:
        raise AssertionError(f"settings() must fit into JSON: {e}") from e


def check_declares_gradient_and_cost(factory: DetectorFactory, world: World) -> None:
    """The gradient is of a known kind; cost() is two counts of passes."""
    kind = class_of(factory).gradient
    kinds = get_args(Gradient)
    require(kind in kinds, f"expected a gradient in {kinds}, got {kind!r}")
    cost = build(factory, world, fit=False).cost()
    counts = len(cost) == 2 and all(type(n) is int and n >= 0 for n in cost)
    require(counts, f"expected cost() to be (forwards, backwards), got {cost}")


def check_is_deterministic(factory: DetectorFactory, world: World) -> None:
    """The same images have the same scores, whatever was scored in between."""
    d = build(factory, world)
    first = scores(d, world.inside)
    scores(d, world.outside)
    again = scores(d, world.inside)
    require(
        torch.equal(first, again),
        f"scores moved by up to {(first - again).abs().max():.3g} between two calls: "
        "declare `stochastic = True` if that is meant",
    )


def check_scores_each_image_on_its_own(factory: DetectorFactory, world: World) -> None:
    """Batch of 1, another order, other company: the same score. Strictly so in float64."""
    for w, tolerance in ((world, 1e-3), (world.double(), 1e-7)):
        d = build(factory, w)
        x = w.inside[:8]
        together = scores(d, x)
        alone = torch.cat([scores(d, one) for one in x.split(1)])
        require_close(alone, together, tolerance, "the score depends on the batch size")
        turned = scores(d, x.flip(0)).flip(0)
        require_close(turned, together, tolerance, "the score depends on the order")
        mixed = scores(d, torch.cat([w.outside, x]))[-len(x) :]
        require_close(mixed, together, tolerance, "the score depends on the other images")


def check_scores_alike_without_autograd(factory: DetectorFactory, world: World) -> None:
    """The same values with gradient, under no_grad and under inference_mode; fitting there too."""
    d = build(factory, world)
    x = world.inside[:8]
    want = d.score(x.clone().requires_grad_()).detach()
    require_close(scores(d, x), want, 1e-5, "no_grad changes the score")
    with torch.inference_mode():
        got = d.score(x.clone())
        d.fit(world.train)
    require_close(got.clone(), want, 1e-5, "inference_mode changes the score")
    after = d.score(x.clone().requires_grad_())
    require_close(after.detach(), want, 1e-3, "fit() under inference_mode changes the score")
    if after.requires_grad:
        after.sum().backward()


def check_scores_alike_among_others(factory: DetectorFactory, world: World) -> None:
    """`score_all`, where detectors share a forward pass, gives what score() gives."""
    d = build(factory, world)
    with torch.no_grad():
        shared = score_all({"other": MSP(d.model), "this": d}, world.inside)
    require_close(shared["this"], scores(d, world.inside), 1e-6, "score_all() differs from score()")
    require(shared["this"].dtype == world.inside.dtype, "score_all() changes the dtype")


def check_scores_alike_on_cuda(factory: DetectorFactory, world: World) -> None:
    """A detector fitted and scored on the GPU agrees with one on the CPU."""
    there = world.to("cuda")
    got = scores(build(factory, there), there.inside).cpu()
    require_close(got, scores(build(factory, world), world.inside), 1e-2, "CUDA changes the score")
