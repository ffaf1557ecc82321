"""The one training loop: every step in sight, every random number seeded by what it is for."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from rood.data.base import ImageSet
from rood.errors import InputError, RoodError
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.training import state
from rood.training.objectives.base import Batch, Objective
from rood.training.settings import Augment, Settings


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
    out: Path
    | None = None,  # folder for the state after each epoch; the same call continues from it
    device: str | torch.device = "cpu",
) -> Iterator[Epoch]:
    """Train `model` in place, one epoch for each record drawn; afterwards it is in eval mode, frozen.

    A run that continues from `out` ends with the weights of an undisturbed one, to the last bit on
    the CPU. Epochs done before are not yielded again.
    """
    settings = settings or Settings()
    _check(model, objective, data, outliers)
    run = describe(model, objective, data, outliers, settings)
    return _epochs(model, objective, data, outliers, held_out, settings, run, out, device)


def _epochs(
    model: Model,
    objective: Objective,
    data: ImageSet,
    outliers: ImageSet | None,
    held_out: ImageSet | None,
    settings: Settings,
    run: dict[str, Any],
    out: Path | None,
    device: str | torch.device,
) -> Iterator[Epoch]:
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    model.to(device).requires_grad_()
    if on_gpu:
        model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
    )
    feed = Feed(data, outliers if objective.needs_outliers else None, settings, device)
    done = _continue(model, optimizer, out, run)
    try:
        for epoch in range(len(done) + 1, settings.epochs + 1):
            started = time.perf_counter()
            model.train()
            total = torch.zeros((), device=device)
            for step in range(feed.steps):
                lr = settings.lr_at((feed.steps * (epoch - 1) + step + 1) / feed.total)
                optimizer.param_groups[0]["lr"] = lr
                batch = feed.batch(epoch, step)
                noise = generator(settings.seed, "objective", epoch, step)
                with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
                    loss = objective.loss(model, batch, noise)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            model.eval()
            mean = total.item() / feed.steps
            _check_finite(model, mean, epoch, out)
            accuracy = None if held_out is None else accuracy_of(model, held_out)
            seconds = time.perf_counter() - started
            record = Epoch(epoch, settings.epochs, mean, lr, seconds, accuracy)
            done.append(asdict(record))
            if out is not None:
                state.save(out, state.State(_tensors(model, optimizer), done), run)
            yield record
    finally:
        model.eval().requires_grad_(False)


class Feed:
    """The batches of every step, from data that lies on the device as it is stored."""

    def __init__(
        self, data: ImageSet, outliers: ImageSet | None, settings: Settings, device: torch.device
    ) -> None:
        assert data.labels is not None
        self.settings, self.device = settings, device
        self.images, self.labels = data.images.to(device), data.labels.long().to(device)
        self.outliers = None if outliers is None else outliers.images.to(device)
        self.size = min(settings.batch_size, len(data))
        self.steps = len(data) // self.size  # what is left over waits for another epoch
        self.total = self.steps * settings.epochs
        self._orders: dict[str, tuple[int, Tensor]] = {}

    def batch(self, epoch: int, step: int) -> Batch:
        """What step number `step` of an epoch trains on."""
        which = self._places("images", len(self.images), self.size, epoch, step)
        x = self._pixels("images", self.images[which], epoch, step)
        if self.outliers is None:
            return Batch(x, self.labels[which])
        size = self.settings.outlier_batch or self.size
        others = self._places("outliers", len(self.outliers), size, epoch, step)
        o = self._pixels("outliers", self.outliers[others], epoch, step)
        return Batch(x, self.labels[which], o)

    def _places(self, what: str, n: int, size: int, epoch: int, step: int) -> Int[Tensor, " s"]:
        """A share of a shuffle of all n places; of several, where an epoch needs more than n."""
        if self._orders.get(what, (0, None))[0] != epoch:
            source = generator(self.settings.seed, "order", what, epoch)
            rounds = -(-self.steps * size // n)
            order = torch.cat([torch.randperm(n, generator=source) for _ in range(rounds)])
            self._orders[what] = epoch, order.to(self.device)
        return self._orders[what][1][step * size : (step + 1) * size]

    def _pixels(self, what: str, images: Tensor, epoch: int, step: int) -> Images:
        augment = self.settings.augment
        if augment.shift or augment.flip:
            images = augmented(images, augment, generator(self.settings.seed, what, epoch, step))
        x = images.float()
        return x / 255 if images.dtype == torch.uint8 else x


def augmented(images: Tensor, augment: Augment, source: torch.Generator) -> Tensor:
    """Each image moved and mirrored by a draw of its own, all in one gather."""
    n, _, h, w = images.shape
    s = augment.shift
    down, right = torch.randint(0, 2 * s + 1, (2, n, 1), generator=source)
    rows = down + torch.arange(h)  # (n, h)
    columns = right + torch.arange(w)  # (n, w)
    if augment.flip:
        mirrored = torch.rand(n, 1, generator=source) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    every, rows, columns = (
        i.to(images.device)
        for i in (torch.arange(n).view(n, 1, 1), rows[:, :, None], columns[:, None, :])
    )
    moved = pad(images, (s, s, s, s))[every, :, rows, columns]  # (n, h, w, c)
    return moved.permute(0, 3, 1, 2)


@torch.no_grad()
def accuracy_of(model: Model, data: ImageSet, batch_size: int = 500) -> float:
    """The share of images whose largest logit is that of their label."""
    device = model.mean.device
    right = sum(
        int((model(x.to(device)).logits.argmax(dim=1).cpu() == y).sum())
        for x, y in data.batches(batch_size)
    )
    return right / len(data)


def describe(
    model: Model,
    objective: Objective,
    data: ImageSet,
    outliers: ImageSet | None,
    settings: Settings,
) -> dict[str, Any]:
    """All that the result depends on, for JSON: two runs with equal descriptions are the same run."""
    return {
        "settings": asdict(settings),
        "objective": {"name": objective.name} | asdict(objective),
        "data": data.fingerprint(),
        "outliers": outliers.fingerprint() if outliers and objective.needs_outliers else None,
        "start": model.fingerprint(),
    }


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
    finite = torch.tensor(loss).isfinite().item()
    if finite and all(v.isfinite().all() for v in model.state_dict().values()):
        return
    kept = f"the state after epoch {epoch - 1} is kept in {out}" if out and epoch > 1 else ""
    what = f"the loss is {loss}" if not finite else "a weight is NaN or infinite"
    raise RoodError(
        f"training broke down in epoch {epoch}: {what}: lower lr" + f"; {kept}" * bool(kept)
    )


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
