"""The training loop; every random number is seeded by its purpose."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rood.attacks.pgd import PGD
from rood.data.base import ImageSet
from rood.errors import InputError, RoodError, expect
from rood.goals import misclassify
from rood.models.model import Model
from rood.seeds import generator
from rood.threat import Linf
from rood.training import state
from rood.training.compiled import Compiled
from rood.training.ema import EMA
from rood.training.feed import Feed
from rood.training.graphed import Graphed, Passes
from rood.training.objectives.base import Batch, Objective
from rood.training.objectives.robust import Robust
from rood.training.parallel import join
from rood.training.settings import Settings
from rood.training.state import Epoch as Epoch
from rood.training.state import Saved, State

SHOWN = 10_000  # images, and outliers, that `Objective.begin` gets


def train(
    model: Model,
    objective: Objective,
    data: ImageSet,
    *,
    outliers: ImageSet | None = None,
    held_out: ImageSet | None = None,
    settings: Settings | None = None,
    out: Path | None = None,  # folder for the state after each epoch, to continue from
    device: str | torch.device = "cpu",
) -> Iterator[Epoch]:
    """Train `model` in place, one epoch per record drawn; afterwards it is frozen, in eval mode.

    The same call on the same folder `out` continues an interrupted run and ends with the weights of
    an uninterrupted one, bit for bit on the CPU; records of earlier epochs are yielded again. Under
    `torchrun` every process makes this call and works on its share of each batch.
    """
    settings = settings or Settings()
    _check(model, objective, data, outliers)
    if settings.robust and (held_out is None or not isinstance(objective, Robust)):
        raise InputError(
            "expected held-out images and an objective with an eps for robust accuracy, got "
            f"{'none' if held_out is None else 'images'} and {objective.name}: set robust = 0"
        )
    outliers = outliers if objective.needs_outliers else None
    share, place = join(torch.device(device))
    share.agree(model.to(place))
    run = {
        "settings": settings.identity(),
        "objective": {"name": objective.name} | asdict(objective),
        "data": data.fingerprint(),
        "outliers": None if outliers is None else outliers.fingerprint(),
        "start": model.fingerprint(),  # of the weights before the first step
    }
    feed = Feed(data, outliers, settings, place, share)
    return _epochs(model, objective, feed, held_out, out, run)


def _epochs(
    model: Model,
    objective: Objective,
    feed: Feed,
    held_out: ImageSet | None,
    out: Path | None,
    run: dict[str, Any],
) -> Iterator[Epoch]:
    settings = feed.settings
    optimizer = _optimizer(model, settings, feed.device)
    memory = _begin(model, objective, feed)
    average = EMA(model, settings.ema)
    now = State(model, optimizer, average, memory)
    done = _continue(now, out, run)
    kept = len(done)
    _try_out(model, feed)
    compiled, passes = Compiled(model, settings.compile), _passes(now, objective, feed)
    try:
        with average.shown(model):
            yield from (Epoch(**record) for record in done)
        for epoch in range(len(done) + 1, settings.epochs + 1):
            started = time.perf_counter()
            with compiled.on(), _fastest_convolutions(feed.device):
                loss = _one_epoch(now, passes, feed, epoch)
            _check_whole(now, objective, loss, epoch, kept, out)
            with average.shown(model):
                measured = _measure(model, objective, held_out, settings)
            lr, seconds = optimizer.param_groups[0]["lr"], time.perf_counter() - started
            record = Epoch(epoch, settings.epochs, loss, lr, seconds, *measured)
            done.append(asdict(record))
            if out is not None and (epoch % settings.save_every == 0 or epoch == settings.epochs):
                kept = epoch
                if feed.share.first:
                    state.save(out, Saved(now.tensors(), done), run)
            with average.shown(model):
                yield record
    finally:
        average.put_into(model)
        model.eval().requires_grad_(False)


def _passes(now: State, objective: Objective, feed: Feed) -> Passes:
    """The forward and backward pass of a step: fills the gradients, returns the loss."""
    half = _in_half(feed.settings, feed.device)

    def passes(batch: Batch, noise: torch.Generator) -> Tensor:
        now.optimizer.zero_grad()
        with torch.autocast(feed.device.type, torch.bfloat16, enabled=half):
            loss = objective.loss(now.model, batch, noise)
        loss.backward()
        return loss.detach()

    recorded = feed.settings.graph and feed.device.type == "cuda" and not objective.has_memory
    return Graphed(passes, now.model) if recorded else passes


def _in_half(settings: Settings, device: torch.device) -> bool:
    return settings.half and device.type == "cuda"


def _one_epoch(now: State, passes: Passes, feed: Feed, epoch: int) -> float:
    """The mean loss of all steps, read at the end so that no step waits for the GPU."""
    settings, model, optimizer = feed.settings, now.model, now.optimizer
    total = torch.zeros((), device=feed.device)
    model.train()
    for step in range(feed.steps):
        share = (epoch - 1 + step / feed.steps) / settings.epochs
        optimizer.param_groups[0]["lr"] = settings.lr_at(share)
        batch = feed.batch(epoch, step)._replace(memory=now.memory, done=share)
        noise = generator(settings.seed, "objective", epoch, step)
        with _drawing_from(generator(settings.seed, "layers", epoch, step)):
            loss = passes(batch, noise)
        feed.share.average_step(model)
        optimizer.step()
        now.average.see(model, (epoch - 1) * feed.steps + step)
        total += loss
    model.eval()
    feed.share.average([total])
    return total.item() / feed.steps


@torch.no_grad()
def accuracy_of(model: Model, data: ImageSet, batch_size: int = 500) -> float:
    """The share of images that are classified correctly."""
    device = model.mean.device
    right = sum(
        int((model(x.to(device)).logits.argmax(dim=1).cpu() == y).sum())
        for x, y in data.batches(batch_size)
    )
    return right / len(data)


def robust_accuracy_of(
    model: Model, data: ImageSet, eps: float, *, seed: int = 0, batch_size: int = 500
) -> float:
    """The share that is still right after PGD-10 in the L-infinity ball of radius eps."""
    device, right = model.mean.device, 0
    for x, y in data.batches(batch_size, device):
        noise = generator(seed, "robust accuracy")
        worst = PGD(steps=10)(misclassify(model, y), x, Linf(eps), noise)
        with torch.no_grad():
            right += int((model(worst).logits.argmax(dim=1) == y).sum())
    return right / len(data)


def _measure(
    model: Model, objective: Objective, held_out: ImageSet | None, settings: Settings
) -> tuple[float | None, float | None]:
    """Accuracy and robust accuracy; None for what is not measured."""
    if held_out is None:
        return None, None
    accuracy = accuracy_of(model, held_out)
    if not settings.robust or not isinstance(objective, Robust):
        return accuracy, None
    some = held_out.thin(settings.robust)
    return accuracy, robust_accuracy_of(model, some, objective.eps, seed=settings.seed)


def _optimizer(model: Model, settings: Settings, device: torch.device) -> torch.optim.Optimizer:
    model.to(device).requires_grad_()
    if device.type == "cuda":
        for p in model.parameters():
            if p.ndim == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
    if settings.optimizer == "adam":
        betas = (settings.momentum, 0.999)
        decay = settings.weight_decay
        return torch.optim.Adam(model.parameters(), settings.lr, betas, weight_decay=decay)
    return torch.optim.SGD(
        model.parameters(),
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
    )


@contextmanager
def _drawing_from(source: torch.Generator) -> Iterator[None]:
    """Let layers that draw by themselves, such as dropout on the CPU, draw from `source`."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(source.get_state())
        yield


@contextmanager
def _fastest_convolutions(device: torch.device) -> Iterator[None]:
    """Let cuDNN benchmark its algorithms: all steps have the same shapes."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@torch.no_grad()
def _try_out(model: Model, feed: Feed) -> None:
    """Pass one image in float32: the model verifies its head, which fails under autocast."""
    model.eval()
    model(feed.batch(1, 0).x[:1])


def _check(model: Model, objective: Objective, data: ImageSet, outliers: ImageSet | None) -> None:
    if objective.needs_outliers and outliers is None:
        raise objective.no_outliers()
    if data.labels is None or not len(data):
        raise InputError(f"expected labelled images to train on, got none in {data.name!r}")
    low, high = int(data.labels.min()), int(data.labels.max())
    labels = f"labels 0 to {model.classes - 1} in {data.name!r}"
    expect(0 <= low <= high < model.classes, labels, f"{low} to {high}")
    shape = data.shape if outliers is None else outliers.shape
    expect(shape == data.shape, f"outliers of shape {data.shape}, as the images are", shape)


def _begin(model: Model, objective: Objective, feed: Feed) -> nn.Module | None:
    """The memory of the objective; None for objectives without one."""
    if not objective.has_memory:
        return None
    processes = feed.share.processes
    what = f"one process for {objective.name}, which keeps state between steps"
    expect(processes == 1, what, processes, do="train without torchrun")
    noise = generator(feed.settings.seed, "begin")
    memory = objective.begin(model, feed.some(SHOWN), noise)
    return None if memory is None else memory.to(feed.device)


def _check_whole(
    now: State, objective: Objective, loss: float, epoch: int, kept: int, out: Path | None
) -> None:
    if not math.isfinite(loss):
        what = f"the loss is {loss}"
    elif not torch.stack([v.isfinite().all() for v in now.weights().values()]).all():
        what = "a weight is NaN or infinite"
    elif (said := objective.wrong(now.memory)) is not None:
        what = said
    else:
        return
    good = f", from the state after epoch {kept} kept in {out}" if out and kept else ""
    raise RoodError(f"training broke down in epoch {epoch}, {what}: lower lr and try again{good}")


def _continue(now: State, out: Path | None, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Restore the state saved in `out`; returns the records of its epochs."""
    found = None if out is None else state.load(out, run)
    if found is None:
        return []
    now.restore(found.tensors)
    return list(found.epochs)
