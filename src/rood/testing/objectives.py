"""The contract of every training objective, as checks.

for check in objective_checks(MyObjective):
    check(MyObjective, toy_world())
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rood.errors import InputError
from rood.models.model import Model
from rood.testing._support import (
    as_in_production,
    class_of,
    example,
    no_trace,
    require,
    require_error,
)
from rood.testing.world import World
from rood.training.objectives.base import Batch, Objective

ObjectiveFactory: TypeAlias = Callable[..., Objective]  # what `registry.get(name)` gives
ObjectiveCheck: TypeAlias = Callable[[ObjectiveFactory, World], None]


def objective_checks(factory: ObjectiveFactory) -> Iterator[ObjectiveCheck]:
    """Every check that applies to the class, by its `needs_outliers`."""
    yield check_gives_one_finite_number
    yield check_gradient_reaches_every_parameter
    yield check_overfits_one_batch
    yield check_moves_batch_norm_once
    yield check_is_reproducible
    yield check_leaves_everything_as_it_was
    if class_of(factory).needs_outliers:
        yield check_asks_for_outliers
        yield check_learns_from_outliers


def make(factory: ObjectiveFactory) -> Objective:
    """The objective with default settings, or its class's `example()`."""
    objective: Objective = example(factory)()
    return objective


def in_training(world: World, factory: ObjectiveFactory) -> Model:
    """A copy of the world's model, or the objective's `example_model`, in train mode."""
    make = getattr(class_of(factory), "example_model", lambda model: model)
    model: Model = make(world.copy().model)
    return model.train().requires_grad_(True)


def batch(world: World) -> Batch:
    """Images of every class and as many outliers."""
    x, y = world.train[0]
    return Batch(x[:24], y[:24], world.outside[:24])


def check_gives_one_finite_number(factory: ObjectiveFactory, world: World) -> None:
    """A float32 scalar, attached to the weights."""
    loss = _loss(factory, in_training(world, factory), batch(world))
    require(loss.shape == (), f"expected a scalar, got shape {tuple(loss.shape)}")
    require(loss.dtype == torch.float32, f"expected float32, got {loss.dtype}")
    require(loss.isfinite(), f"expected a finite loss, got {loss.item()}")
    require(loss.requires_grad, "the loss does not depend on the weights")


def check_gradient_reaches_every_parameter(factory: ObjectiveFactory, world: World) -> None:
    """Every weight gets a finite gradient, and not all are zero."""
    model = in_training(world, factory)
    parameters = dict(model.named_parameters())
    loss = _loss(factory, model, batch(world))
    require(loss.requires_grad, "the loss does not depend on the weights")
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    for name, g in zip(parameters, found, strict=True):
        require(g is not None, f"no gradient reaches {name}")
        require(g.isfinite().all(), f"the gradient of {name} is not finite")
    require(any((g != 0).any() for g in found), "every gradient is zero")


def check_overfits_one_batch(factory: ObjectiveFactory, world: World) -> None:
    """From fresh weights, forty steps on one batch reduce the loss by 10 % or more."""
    model = in_training(world, factory)
    _reset(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = _loss(factory, model, batch(world))
        require(loss.requires_grad, "the loss does not depend on the weights")
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    first, last = losses[0], min(losses[-5:])
    require(last < 0.9 * first, f"the loss goes from {first:.4g} to {last:.4g} in 40 steps")
    model.eval()
    right = (model(batch(world).x).logits.argmax(dim=1) == batch(world).y).float().mean().item()
    require(right > 0.9, f"accuracy {right:.0%} on the one batch it was trained on")


def check_moves_batch_norm_once(factory: ObjectiveFactory, world: World) -> None:
    """One loss updates batch-norm statistics `batch_norm_updates` times."""
    model = in_training(world, factory)
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    before = [_count(m) for m in layers]
    _loss(factory, model, batch(world))
    allowed = make(factory).batch_norm_updates
    for layer, count in zip(layers, before, strict=True):
        moved = _count(layer) - count
        require(
            moved == allowed,
            f"one loss updated the batch-norm statistics {moved} times, expected {allowed}: search "
            "in eval mode, or declare `batch_norm_updates`",
        )


def check_is_reproducible(factory: ObjectiveFactory, world: World) -> None:
    """The same generator gives the same loss, whatever the global RNG state."""
    first = _loss(factory, in_training(world, factory), batch(world)).item()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        second = _loss(factory, in_training(world, factory), batch(world)).item()
    require(first == second, f"the same generator gave {first:.9g} and {second:.9g}")


def check_leaves_everything_as_it_was(factory: ObjectiveFactory, world: World) -> None:
    """Modes, requires_grad, weights, images and global RNG state, except statistics."""
    model, given = in_training(world, factory), batch(world)
    layers = list(model.net.children())
    frozen = next((m for m in model.modules() if isinstance(m, nn.BatchNorm2d)), layers[0])
    frozen.eval()  # as in fine-tuning: setting all layers to train mode at the end is wrong
    next(model.parameters()).requires_grad_(False)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.0  # so that the allowed update changes nothing
            m.num_batches_tracked = None
    assert given.outliers is not None
    with no_trace("loss()", model, x=given.x, y=given.y, outliers=given.outliers):
        _loss(factory, model, given)


def check_asks_for_outliers(factory: ObjectiveFactory, world: World) -> None:
    """InputError for missing or empty outliers, if they are needed."""
    given, model = batch(world), in_training(world, factory)
    none = given._replace(outliers=None)
    require_error(InputError, lambda: _loss(factory, model, none), "a batch without outliers")
    empty = given._replace(outliers=world.outside[:0])
    require_error(InputError, lambda: _loss(factory, model, empty), "a batch of no outliers")


def check_learns_from_outliers(factory: ObjectiveFactory, world: World) -> None:
    """Other outliers give another loss, if they are needed."""
    given = batch(world)
    other = given._replace(outliers=world.inside[:24])
    # in eval mode, so that outliers have no effect by way of batch statistics
    losses = [_loss(factory, in_training(world, factory).eval(), b).item() for b in (given, other)]
    require(losses[0] != losses[1], "other outliers give the same loss: are they used?")


def _loss(factory: ObjectiveFactory, model: Model, given: Batch) -> Tensor:
    with as_in_production():  # a check tests the shape of the loss
        return make(factory).loss(model, given, torch.Generator().manual_seed(0))


def _reset(model: Model) -> None:
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.copy_(torch.randn(p.shape, generator=g) / p[0].numel() ** 0.5)


def _count(layer: nn.BatchNorm2d) -> int:
    assert layer.num_batches_tracked is not None
    return int(layer.num_batches_tracked)
