"""What a detector's fit() must keep."""

from collections.abc import Iterator

import torch
from safetensors.torch import load, save

from rood.errors import InputError, NotFittedError
from rood.testing._support import (
    DetectorCheck,
    DetectorFactory,
    build,
    class_of,
    require,
    require_close,
    scores,
)
from rood.testing.world import World


def fitting_checks(factory: DetectorFactory) -> Iterator[DetectorCheck]:
    """Also for detectors that learn nothing themselves: what they wrap may."""
    yield check_fit_sets_every_declared_name
    yield check_survives_a_class_missing_in_fit
    if not class_of(factory).stochastic:
        yield check_refits_to_the_same_scores
        yield check_fitted_state_round_trips
        yield check_fits_alike_in_any_batches


def check_fit_sets_every_declared_name(factory: DetectorFactory, world: World) -> None:
    """After fit(), every `name_` that was declared is there and finite."""
    d = build(factory, world, fit=False)
    try:
        fitted = d.fit(world.train)
    except NotFittedError as e:
        raise AssertionError(f"fit() left a declared name unset: {e}") from e
    require(fitted is d, "fit() must return the detector itself")
    for name, value in d.fitted_state().items():
        require(isinstance(value, torch.Tensor), f"{name} is no tensor, but {type(value).__name__}")
        require(value.isfinite().all(), f"fit() made {name} NaN or infinite")


def check_survives_a_class_missing_in_fit(factory: DetectorFactory, world: World) -> None:
    """Finite scores all the same, or an InputError that names the class."""
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
    """fit() starts from scratch: neither twice the same data nor other data before it shows."""
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
    """Through safetensors into a new detector: all that was learnt is in fitted_state()."""
    d = build(factory, world)
    stored = load(save({n: v.contiguous() for n, v in d.fitted_state().items()}))
    again = build(factory, world, fit=False)
    try:
        got = scores(again.load_fitted(stored), world.inside)
    except Exception as e:
        raise AssertionError(f"no score from the stored state, something is not in it: {e}") from e
    same = torch.equal(got, scores(d, world.inside))
    require(same, "scores differ after the state was stored: declare what fit() learns as `name_`")


def check_fits_alike_in_any_batches(factory: DetectorFactory, world: World) -> None:
    """Batch size and order of the training data do not matter."""
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
