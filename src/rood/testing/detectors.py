"""The contract of every detector, as checks.

for check in detector_checks(MyDetector):
    check(MyDetector, toy_world())
"""

import copy
import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

import torch
from safetensors.torch import load, save
from torch import Tensor

from rood.detectors import score_all
from rood.detectors.base import (
    Detector,
    Gradient,
    OutputBox,
    OutputDetector,
    ScoreFunction,
)
from rood.detectors.msp import MSP
from rood.errors import InputError, NotFittedError
from rood.metrics import auroc
from rood.models.model import Outputs
from rood.numerics.box import Box
from rood.registry import paper
from rood.seeds import generator
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
from rood.testing.world import World

H = 1e-6  # half the finite difference, in pixels
SHARP = 50  # factor on the logits


def detector_checks(factory: DetectorFactory) -> Iterator[DetectorCheck]:
    """Every check that applies to the class, by its `gradient` and `stochastic`."""
    yield check_gives_one_finite_score_per_image
    yield check_scores_ood_higher
    yield check_leaves_everything_as_it_was
    yield check_refuses_what_is_not_an_image
    yield check_complains_before_fit
    yield check_gives_no_scores_for_no_images
    yield check_docstring_gives_formula_and_source
    yield check_hyperparameters_are_keywords_with_defaults
    yield check_declares_gradient_and_cost
    yield check_fit_sets_every_declared_name
    yield check_survives_a_class_missing_in_fit
    yield check_surrogates_are_differentiable
    cls = class_of(factory)
    attackable = cls.gradient in ("exact", "almost_everywhere")
    if attackable:
        yield check_does_not_saturate
    if not cls.stochastic:
        if attackable:
            yield check_gradient_matches_finite_differences
        yield check_refits_to_the_same_scores
        yield check_fitted_state_round_trips
        yield check_fits_alike_in_any_batches
        yield check_is_deterministic
        yield check_scores_each_image_on_its_own
        yield check_scores_alike_without_autograd
        yield check_scores_alike_among_others
        if torch.cuda.is_available():
            yield check_scores_alike_on_cuda
        if _offers(cls, "bounds_from", "bounds_around"):
            yield check_bounds_hold


def check_gives_one_finite_score_per_image(factory: DetectorFactory, world: World) -> None:
    """Shape (b,), the dtype of the images, all finite; in float32 and float64."""
    for w in (world, world.double()):
        d = build(factory, w)
        for side, x in (("inside", w.inside), ("outside", w.outside)):
            s = d.score(x)
            require(s.shape == (len(x),), f"expected {len(x)} scores, got {tuple(s.shape)}")
            require(s.dtype == x.dtype, f"expected the images' {x.dtype}, got {s.dtype}")
            require(s.isfinite().all(), f"{(~s.isfinite()).sum()} scores {side} are not finite")


def check_scores_ood_higher(factory: DetectorFactory, world: World) -> None:
    """AUROC > 0.7 on an easy problem, where only a wrong sign or a broken score fails."""
    d = build(factory, world)
    a = auroc(inside=scores(d, world.inside), outside=scores(d, world.outside))
    require(a > 0.7, f"AUROC {a:.3f} on an easy problem: is the sign wrong?")


def check_leaves_everything_as_it_was(factory: DetectorFactory, world: World) -> None:
    """Input, weights, batch-norm statistics, modes, gradients, hooks and global RNG state."""
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
    """InputError for pixels outside [0, 1], NaN, and another rank, dtype or device."""
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
    """NotFittedError for score() before fit(), if there is something to fit."""
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
    """The docstring of the class states the formula and the source."""
    doc = class_of(factory).__doc__ or ""
    require("s(x) =" in doc, "state the score in the docstring as `s(x) = ...`, higher = more OOD")
    require(
        bool(paper(class_of(factory))),
        "cite the paper in the docstring: arXiv:..., doi:..., openreview:... or thecvf:...",
    )


def check_hyperparameters_are_keywords_with_defaults(
    factory: DetectorFactory, world: World
) -> None:
    """Model or parts first, then keywords with defaults, stored by name and JSON-serialisable."""
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
    """`gradient` is a known kind; cost() is the number of forward and backward passes."""
    kind = class_of(factory).gradient
    kinds = get_args(Gradient)
    require(kind in kinds, f"expected a gradient in {kinds}, got {kind!r}")
    cost = build(factory, world, fit=False).cost()
    counts = len(cost) == 2 and all(type(n) is int and n >= 0 for n in cost)
    require(counts, f"expected cost() to be (forwards, backwards), got {cost}")


def check_is_deterministic(factory: DetectorFactory, world: World) -> None:
    """The same images get the same scores again, after others were scored."""
    d = build(factory, world)
    first = scores(d, world.inside)
    scores(d, world.outside)
    again = scores(d, world.inside)
    require(
        torch.equal(first, again),
        f"scores moved by up to {(first - again).abs().max():.3g} between two calls: "
        "declare `stochastic = True` if intended",
    )


def check_scores_each_image_on_its_own(factory: DetectorFactory, world: World) -> None:
    """The same score in a batch of 1, in another order and among other images."""
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
    """The same scores with gradient, under no_grad and under inference_mode, as is fitting."""
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
    """`score_all`, where detectors share a forward pass, equals score()."""
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


def check_fit_sets_every_declared_name(factory: DetectorFactory, world: World) -> None:
    """After fit(), every declared `name_` is set and finite."""
    d = build(factory, world, fit=False)
    try:
        fitted = d.fit(world.train)
    except NotFittedError as e:
        raise AssertionError(f"fit() left a declared name unset: {e}") from e
    require(fitted is d, "fit() must return the detector itself")
    for name, value in d.fitted_state().items():
        require(
            isinstance(value, torch.Tensor), f"{name} is a {type(value).__name__}, not a tensor"
        )
        require(value.isfinite().all(), f"fit() made {name} NaN or infinite")


def check_survives_a_class_missing_in_fit(factory: DetectorFactory, world: World) -> None:
    """Finite scores, or an InputError that names the class."""
    missing = 1
    train = [(x[y != missing], y[y != missing]) for x, y in world.train]
    d = build(factory, world, fit=False)
    try:
        s = scores(d.fit(train), world.inside)
    except InputError as e:
        require(
            f"class {missing}" in str(e),
            f"no image of class {missing} in fit(): the error must say so, got: {e}",
        )
        return
    require(s.isfinite().all(), f"no image of class {missing} in fit(): scores are not finite")


def check_refits_to_the_same_scores(factory: DetectorFactory, world: World) -> None:
    """fit() starts from scratch: earlier fits, on the same or other data, have no effect."""
    d = build(factory, world)
    first = scores(d, world.inside)
    sizes = {name: value.shape for name, value in d.fitted_state().items()}
    require_close(scores(d.fit(world.train), world.inside), first, 1e-6, "a second fit() differs")
    d.fit([(x.flip(1), y) for x, y in world.train])
    again = scores(d.fit(world.train), world.inside)
    require_close(again, first, 1e-6, "fit() remembers what it was fitted on before")
    for name, value in d.fitted_state().items():
        require(value.shape == sizes[name], f"{name} grows with every fit()")


def check_fitted_state_round_trips(factory: DetectorFactory, world: World) -> None:
    """A new detector that loads fitted_state() by way of safetensors scores the same."""
    d = build(factory, world)
    stored = load(save({n: v.contiguous() for n, v in d.fitted_state().items()}))
    again = build(factory, world, fit=False)
    try:
        got = scores(again.load_fitted(stored), world.inside)
    except Exception as e:
        raise AssertionError(f"no score from the stored state, which is incomplete: {e}") from e
    same = torch.equal(got, scores(d, world.inside))
    require(same, "scores differ after loading the state: declare what fit() learns as `name_`")


def check_fits_alike_in_any_batches(factory: DetectorFactory, world: World) -> None:
    """Batch size and order of the training data have no effect; one pass suffices."""
    w = world.double()
    x, y = (torch.cat(part) for part in zip(*w.train, strict=True))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    d = build(factory, w)
    want = scores(d, w.inside)
    other = list(zip(x[order].split(37), y[order].split(37), strict=True))
    got = scores(d.fit(other), w.inside)
    require_close(got, want, 1e-5, "the fit depends on batch size or order of the data")
    got = scores(d.fit(iter(other)), w.inside)
    require_close(got, want, 1e-5, "fit() must need one pass over the data only")


def check_gradient_matches_finite_differences(factory: DetectorFactory, world: World) -> None:
    """Autograd equals finite differences: finds .data, .detach(), NumPy and no_grad."""
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
    """Each returns one finite number per image and a finite gradient."""
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


def check_bounds_hold(factory: DetectorFactory, world: World) -> None:
    """Scores of random and corner points lie within `bounds_from`; a point's bounds are its score.

    The bounds of a detector with inner ones follow from theirs, whatever those are.
    """
    w = world.double()
    d = build(factory, w)
    x = torch.cat([w.inside[:8], w.outside[:8]])
    if not isinstance(d, OutputDetector):
        _require_within(scores(d, x), d.bounds_around(x, _around), "bounds_around")
        return
    require(d.bounded, "name what bounds_from reads in `bounded`")
    with torch.no_grad():
        out = d.model(x)
    spread = out.features.std(dim=0)
    for share in (0.0, 0.1, 1.0):
        reach = share * torch.rand(out.features.shape, generator=generator(1, "box")) * spread
        box = Box(out.features - reach, out.features + reach)
        found = d.bounds_from(_output_box(d, box))
        for draw in range(12):
            place = torch.rand(reach.shape, generator=generator(draw, "place")).double()
            place = place.round() if draw % 2 else place
            f = box.low + place * (box.high - box.low)
            _require_within(_score_of(d, f), found, f"bounds_from ({share:g} of the spread)")
        if share == 0:
            s = scores(d, x)
            require_close(found.low, s, 1e-6, "the lower bound of a point is not its score")
            require_close(found.high, s, 1e-6, "the upper bound of a point is not its score")


def _offers(cls: type[Detector], *names: str) -> bool:
    """Whether a class overrides one of these methods."""
    usual = OutputDetector
    return any(getattr(cls, n, None) not in (None, getattr(usual, n)) for n in names)


def _around(detector: Detector, x: Tensor) -> Box:
    """Some bounds of an inner detector, wider for some images than for others."""
    s, more = scores(detector, x), torch.rand(2, len(x), generator=generator(2, "inner")).double()
    return Box(s - more[0], s + more[1])


def _output_box(d: OutputDetector, features: Box) -> OutputBox:
    """What follows from a box of features, as interval bounds."""
    head, scalar, rows = d.model.head, d.model.scalar_head, d.forms()
    score = None if scalar is None else features.linear(scalar.weight, scalar.bias)
    return OutputBox(
        features.linear(head.weight, head.bias),
        features,
        None if score is None else Box(*(v[:, 0] for v in score)),
        None if rows is None else features.linear(rows),
    )


def _score_of(d: OutputDetector, f: Tensor) -> Tensor:
    """The score of features, wherever they come from."""
    scalar = d.model.scalar_head
    with torch.no_grad():
        head = None if scalar is None else scalar(f)[:, 0]
        return d.score_outputs(Outputs(d.model.head(f), f, head=head))


def _require_within(s: Tensor, box: Box, name: str) -> None:
    """Every score within its bounds, up to rounding."""
    slack = 1e-9 * (1 + s.abs())
    bad = (s < box.low - slack) | (s > box.high + slack)
    if bool(bad.any()):
        i = int(bad.nonzero()[0])
        low, high = (float(v[i]) for v in box)
        raise AssertionError(f"{name}: score {s[i].item():.9g} outside [{low:.9g}, {high:.9g}]")


def check_does_not_saturate(factory: DetectorFactory, world: World) -> None:
    """With logits scaled by 50, gradients remain for 99 % of the images, and none tie."""
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
        "write the score in a form that does not saturate",
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
