"""The one training loop: every step in sight, every random number seeded by what it is for."""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rood.data.base import ImageSet
from rood.errors import InputError, RoodError
from rood.models.model import Model
from rood.seeds import generator
from rood.training import state
from rood.training.feed import Feed
from rood.training.objectives.base import Objective
from rood.training.settings import Settings


@dataclass(frozen=True)
class Epoch:
    """What one pass over the data came to."""

    epoch: int  # 1 for the first
    epochs: int  # how many there will be
    loss: float  # mean over the steps
    lr: float  # of the last step
    seconds: float
    accuracy: float | None  # on the held-out images, where there are any


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
    """
    settings = settings or Settings()
    _check(model, objective, data, outliers)
    outliers = outliers if objective.needs_outliers else None
    run = {
        "settings": asdict(settings),
        "objective": {"name": objective.name} | asdict(objective),
        "data": data.fingerprint(),
        "outliers": None if outliers is None else outliers.fingerprint(),
        "start": model.fingerprint(),  # of the weights before the first step
    }
    feed = Feed(data, outliers, settings, torch.device(device))
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
    done = _continue(model, optimizer, out, run)
    _try_out(model, feed)
    try:
        yield from (Epoch(**record) for record in done)
        for epoch in range(len(done) + 1, settings.epochs + 1):
            started = time.perf_counter()
            loss = _one_epoch(model, objective, feed, optimizer, epoch)
            _check_finite(model, loss, epoch, out)
            accuracy = None if held_out is None else accuracy_of(model, held_out)
            lr = optimizer.param_groups[0]["lr"]
            seconds = time.perf_counter() - started
            record = Epoch(epoch, settings.epochs, loss, lr, seconds, accuracy)
            done.append(asdict(record))
            if out is not None:
                state.save(out, state.State(_tensors(model, optimizer), done), run)
            yield record
    finally:
        model.eval().requires_grad_(False)


def _one_epoch(
    model: Model, objective: Objective, feed: Feed, optimizer: torch.optim.SGD, epoch: int
) -> float:
    """The mean loss of all steps."""
    settings, on_gpu = feed.settings, feed.device.type == "cuda"
    total = torch.zeros((), device=feed.device)
    model.train()
    for step in range(feed.steps):
        share = (epoch - 1 + step / feed.steps) / settings.epochs
        optimizer.param_groups[0]["lr"] = settings.lr_at(share)
        batch = feed.batch(epoch, step)
        noise = generator(settings.seed, "objective", epoch, step)
        with torch.autocast(feed.device.type, torch.bfloat16, enabled=on_gpu):
            loss = objective.loss(model, batch, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    model.eval()
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


def _optimizer(model: Model, settings: Settings, device: torch.device) -> torch.optim.SGD:
    model.to(device).requires_grad_()
    if device.type == "cuda":
        for p in model.parameters():
            if p.ndim == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
    return torch.optim.SGD(
        model.parameters(),
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
    )


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


def _check_finite(model: Model, loss: float, epoch: int, out: Path | None) -> None:
    whole = all(v.isfinite().all() for v in model.state_dict().values())
    if math.isfinite(loss) and whole:
        return
    what = "a weight is NaN or infinite" if math.isfinite(loss) else f"the loss is {loss}"
    kept = f", from the state after epoch {epoch - 1} kept in {out}" if out and epoch > 1 else ""
    raise RoodError(f"training broke down in epoch {epoch}, {what}: lower lr and try again{kept}")


def _tensors(model: Model, optimizer: torch.optim.SGD) -> dict[str, Tensor]:
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    for name, p in model.named_parameters():
        if (momentum := optimizer.state[p].get("momentum_buffer")) is not None:
            tensors[f"momentum.{name}"] = momentum
    return tensors


def _continue(
    model: Model, optimizer: torch.optim.SGD, out: Path | None, run: dict[str, Any]
) -> list[dict[str, Any]]:
    """Take over the state in `out`; the records of the epochs that are done."""
    found = None if out is None else state.load(out, run)
    if found is None:
        return []
    prefix = "model."
    weights = {k.removeprefix(prefix): v for k, v in found.tensors.items() if k.startswith(prefix)}
    model.load_state_dict(weights)
    for name, p in model.named_parameters():
        if (momentum := found.tensors.get(f"momentum.{name}")) is not None:
            optimizer.state[p]["momentum_buffer"] = momentum.to(p.device)
    return list(found.epochs)
