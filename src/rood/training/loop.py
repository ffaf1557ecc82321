"""The one training loop: every step in sight, every random number seeded by what it is for."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rood.attacks.pgd import PGD
from rood.data.base import ImageSet
from rood.errors import InputError, RoodError
from rood.goals import misclassify
from rood.models.model import Model
from rood.seeds import generator
from rood.threat import Linf
from rood.training import state
from rood.training.average import Average
from rood.training.compiled import Compiled
from rood.training.feed import Feed
from rood.training.graphed import Graphed, Passes
from rood.training.objectives.base import Batch, Objective
from rood.training.objectives.robust import Robust
from rood.training.parallel import join
from rood.training.settings import Settings
from rood.training.standing import Standing

SHOWN = 10_000  # images, and outliers, that an objective sees before the first step


@dataclass(frozen=True)
class Epoch:
    """What one pass over the data came to."""

    epoch: int  # 1 for the first
    epochs: int  # how many there will be
    loss: float  # mean over the steps
    lr: float  # of the last step
    seconds: float
    accuracy: float | None  # on the held-out images, where there are any
    robust_accuracy: float | None = None  # on some of them under PGD-10, where that was asked for


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
    """Train `model` in place, one epoch for each record drawn; then it is in eval mode and frozen.

    The same call on a folder `out` continues where it stopped, and ends with the weights of an
    undisturbed run, to the last bit on the CPU. Epochs done before are yielded from its records.
    Under `torchrun` every process makes this call, and each batch is shared between them.
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
    average = Average(model, settings.ema)
    now = Standing(model, optimizer, average, memory)
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
                    state.save(out, state.State(now.tensors(), done), run)
            with average.shown(model):
                yield record
    finally:
        average.put_into(model)
        model.eval().requires_grad_(False)


def _passes(now: Standing, objective: Objective, feed: Feed) -> Passes:
    """The forward and backward passes of a step: gradients into the parameters, the loss out."""
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


def _one_epoch(now: Standing, passes: Passes, feed: Feed, epoch: int) -> float:
    """The mean loss of all steps. No step waits for the GPU; the mean is read at the end."""
    settings, model, optimizer = feed.settings, now.model, now.optimizer
    total = torch.zeros((), device=feed.device)
    model.train()
    for step in range(feed.steps):
        share = (epoch - 1 + step / feed.steps) / settings.epochs
        optimizer.param_groups[0]["lr"] = settings.lr_at(share)
        batch = feed.batch(epoch, step)._replace(memory=now.memory)
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
    """The share of images whose largest logit is that of their label."""
    device = model.mean.device
    right = sum(
        int((model(x.to(device)).logits.argmax(dim=1).cpu() == y).sum())
        for x, y in data.batches(batch_size)
    )
    return right / len(data)


def robust_accuracy_of(
    model: Model, data: ImageSet, eps: float, *, seed: int = 0, batch_size: int = 500
) -> float:
    """The same after PGD with 10 steps in the L-infinity ball of radius eps."""
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
    """Accuracy and robust accuracy, each where it can be had and was asked for."""
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
    """Layers that draw by themselves, as dropout does, draw from here where they are on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(source.get_state())
        yield


@contextmanager
def _fastest_convolutions(device: torch.device) -> Iterator[None]:
    """Let cuDNN try which of its ways is fastest: the shapes of all steps are the same."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@torch.no_grad()
def _try_out(model: Model, feed: Feed) -> None:
    """One image in float32, where the model confirms its head: under autocast it could not."""
    model.eval()
    model(feed.batch(1, 0).x[:1])


def _check(model: Model, objective: Objective, data: ImageSet, outliers: ImageSet | None) -> None:
    if objective.needs_outliers and outliers is None:
        raise objective.no_outliers()
    if data.labels is None or not len(data):
        raise InputError(f"expected labelled images to train on, got none in {data.name!r}")
    low, high = int(data.labels.min()), int(data.labels.max())
    if low < 0 or high >= model.classes:
        raise InputError(
            f"expected labels 0 to {model.classes - 1} in {data.name!r}, got {low} to {high}"
        )
    if outliers is not None and outliers.shape != data.shape:
        raise InputError(
            f"expected outliers of shape {data.shape}, as the images are, got {outliers.shape}"
        )


def _begin(model: Model, objective: Objective, feed: Feed) -> nn.Module | None:
    """What the objective keeps from step to step, where it keeps something."""
    if not objective.has_memory:
        return None
    if feed.share.processes > 1:
        raise InputError(
            f"expected one process for {objective.name}, which keeps something from step to step, "
            f"got {feed.share.processes}: train without torchrun"
        )
    noise = generator(feed.settings.seed, "begin")
    memory = objective.begin(model, feed.some(SHOWN), noise)
    return None if memory is None else memory.to(feed.device)


def _check_whole(
    now: Standing, objective: Objective, loss: float, epoch: int, kept: int, out: Path | None
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


def _continue(now: Standing, out: Path | None, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Take over the state in `out`; the records of the epochs that are done."""
    found = None if out is None else state.load(out, run)
    if found is None:
        return []
    now.restore(found.tensors)
    return list(found.epochs)
