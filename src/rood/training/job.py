"""Carry out a recipe: read its images, train the network, write it with its card."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rood import data
from rood._files import Folder
from rood.data.base import SHARES, ImageSet, Shape
from rood.errors import CheckpointError, DataError, InputError, expect
from rood.models import backbones, checkpoint
from rood.models.generative import Generative
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.training import outliers
from rood.training.loop import Epoch, accuracy_of, train
from rood.training.parallel import first
from rood.training.recipe import Recipe
from rood.training.state import OURS

SETTLED = 512  # training images that initialise a generative network
_LEAST_STD = 1 / 255  # of a channel: a constant one has none


def parts(recipe: Recipe) -> dict[str, ImageSet]:
    """The images to fit, calibrate and test on: the last two held out, or split by content."""
    images = _labelled(recipe, recipe.data)
    if recipe.held_out is None:
        divided = data.split(images, "", **SHARES)
    else:
        held = _labelled(recipe, recipe.held_out, images.shape)
        if held.classes != images.classes:
            raise DataError(
                f"expected the held-out images to have the classes {_few(images.classes)}, got "
                f"{_few(held.classes)}"
            )
        divided = {"fit": _without(images, held), "calibrate": held, "test": held}
    _check(divided["fit"], recipe)
    return divided


def run(
    recipe: Recipe,
    out: Path,  # the weights file; its card goes beside it
    command: str,  # that trains it again, for the card
    *,
    device: str | torch.device = "cpu",
    half: bool = False,  # round the weights to float16
) -> Iterator[Epoch]:
    """Train a network and write it, one epoch per record drawn.

    An interrupted run continues from the folder `out` + ".training", which is removed at the end.
    """
    if recipe.objective.needs_outliers and recipe.outliers is None:
        raise recipe.objective.no_outliers()
    folder = out.with_name(f"{out.name}.training")
    _check_place(out, folder)
    divided = parts(recipe)
    against = None
    if recipe.outliers is not None and recipe.objective.needs_outliers:
        fit = divided["fit"]
        load = lambda spec: data.load(spec, shape=fit.shape, skip_bad=recipe.skip_bad)
        unseen = [*map(load, recipe.unseen), divided["test"]]
        unseen += [] if recipe.held_out else [divided["calibrate"]]
        against = outliers.load(recipe.outliers, fit, unseen, skip_bad=recipe.skip_bad)
    facts = _facts(recipe, divided, against) | {"command": command}
    epochs = _trained(recipe, divided, against, out, folder, facts, torch.device(device), half)
    return _alone(folder, epochs)


def _alone(folder: Path, epochs: Iterator[Epoch]) -> Iterator[Epoch]:
    """The epochs, under the lock of their folder; the first of several processes holds it."""
    with ExitStack() as stack:
        try:
            if first():
                stack.enter_context(Folder(folder).locked())
        except BlockingIOError as e:
            raise CheckpointError(
                f"another training is writing to {folder}: wait for it or choose another folder"
            ) from e
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            raise CheckpointError(
                f"cannot write to {folder} ({reason}): choose another folder"
            ) from e
        yield from epochs


def _trained(
    recipe: Recipe,
    divided: Mapping[str, ImageSet],
    against: ImageSet | None,
    out: Path,
    folder: Path,
    facts: dict[str, Any],
    device: torch.device,
    half: bool,
) -> Iterator[Epoch]:
    images = divided["fit"]
    model = start(recipe, images)
    seconds = 0.0
    for epoch in train(
        model,
        recipe.objective,
        images,
        outliers=against,
        held_out=divided["calibrate"],
        settings=recipe.settings,
        out=folder,
        device=device,
    ):
        seconds += epoch.seconds
        yield epoch
    if not first():
        return
    if half:
        _round(model)  # before the accuracy is measured
    facts |= {
        "accuracy": round(accuracy_of(model, divided["test"]), 4),
        "seconds": round(seconds),
        "hardware": _hardware(device),
    }
    card = {"shape": list(images.shape), "classes": list(images.classes), "training": facts}
    checkpoint.save(model.cpu(), out, card, half=half)
    Folder(folder.parent).remove_tree(folder.name)


def start(recipe: Recipe, images: ImageSet) -> Model:
    """The untrained network of a recipe."""
    architecture: dict[str, Any] = dict(recipe.architecture)
    net = backbones.create(
        recipe.backbone,
        classes=len(images.classes),
        channels=images.shape[0],
        seed=recipe.settings.seed,
        **architecture,
    )
    if isinstance(net, Generative):
        some = images.thin(SETTLED).pixels()
        net.settle(some, generator(recipe.settings.seed, "settle"))
        return wrap(net, head="head")  # takes pixels without normalisation
    mean, std = _statistics(images)
    # named, as a scalar head may be the last layer
    return wrap(net, head="head", mean=recipe.mean or mean, std=recipe.std or std)


def _labelled(recipe: Recipe, spec: str, shape: Shape | None = None) -> ImageSet:
    """Labelled images whose classes all have names."""
    images = data.load(spec, shape=shape, skip_bad=recipe.skip_bad)
    if shape is None and recipe.size is not None:
        # read again, not resized: an audit reads them so and must split them alike
        wanted = (images.shape[0], recipe.size, recipe.size)
        images = data.load(spec, shape=wanted, skip_bad=recipe.skip_bad)
    if images.labels is None or not len(images):
        raise InputError(
            f"expected labelled images in {spec!r}, got none: put them in one folder per class"
        )
    if images.classes:
        return images
    count = int(images.labels.max()) + 1
    return replace(images, classes=tuple(str(i) for i in range(count)))


def _without(images: ImageSet, held: ImageSet) -> ImageSet:
    """The training images without those that are held out."""
    keep = torch.from_numpy(~np.isin(images.hashes(), held.hashes()))
    if bool(keep.all()):
        return images
    note = f"{int((~keep).sum())} images left out because they are held out"
    return replace(images.take(keep), notes=(*images.notes, note))


def _check(images: ImageSet, recipe: Recipe) -> None:
    assert images.labels is not None
    n, size = len(images), recipe.settings.batch_size
    what = "at least 2 images to train on at once"
    expect(min(n, size) >= 2, what, f"{n} in batches of {size}")
    there = set(images.labels.tolist())
    if absent := [c for i, c in enumerate(images.classes) if i not in there]:
        raise DataError(
            f"expected images of every class to train on, got none of {_few(absent)}: give more "
            "images, or name held-out ones"
        )


def _check_place(out: Path, folder: Path) -> None:
    if os.path.exists(out) and not os.path.exists(folder):
        raise CheckpointError(
            f"expected no network at {str(out)!r} yet, found one: remove it, or write elsewhere"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if os.path.islink(folder):
            raise CheckpointError(f"expected a folder at {str(folder)!r}, found a link: remove it")
        if (other := Folder(folder).foreign(*OURS)) is not None:
            raise CheckpointError(
                f"expected the state of a training in {str(folder)!r}, which is removed at the "
                f"end, found {other!r} in it: write elsewhere"
            )
    except OSError as e:
        raise CheckpointError(f"cannot write to {str(out.parent)!r}: {e.strerror}") from e


def _statistics(images: ImageSet) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, to four digits."""
    n, total, squares = 0, torch.zeros(images.shape[0]).double(), torch.zeros(1).double()
    for x, _ in images.batches(1000):
        x = x.double()
        n += x.numel() // x.shape[1]
        total, squares = total + x.sum(dim=(0, 2, 3)), squares + x.square().sum(dim=(0, 2, 3))
    mean = total / n
    std = (squares / n - mean.square()).clamp(min=0).sqrt().clamp(min=_LEAST_STD)
    return [round(m, 4) for m in mean.tolist()], [round(s, 4) for s in std.tolist()]


def _round(model: Model) -> None:
    for p in model.parameters():
        if p.ndim > 1:  # as the checkpoint does
            p.data = p.data.half().float()


def _facts(
    recipe: Recipe, divided: Mapping[str, ImageSet], against: ImageSet | None
) -> dict[str, Any]:
    part = {} if recipe.held_out else {"part": "fit", "shares": SHARES}
    tested = {} if recipe.held_out else {"part": "test"}
    return {
        "objective": {"name": recipe.objective.name} | asdict(recipe.objective),
        "settings": asdict(recipe.settings),
        "data": _about(recipe.data, divided["fit"]) | part,
        "outliers": None if against is None else _about(str(recipe.outliers), against),
        "unseen": list(recipe.unseen),
        "tested_on": _about(recipe.held_out or recipe.data, divided["test"]) | tested,
    }


def _about(spec: str, images: ImageSet) -> dict[str, Any]:
    notes = {"notes": list(images.notes)} if images.notes else {}
    return {"spec": spec, "images": len(images), "sha256": images.fingerprint()} | notes


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    else:
        where = f"{platform.machine()} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"
    return f"{where}, torch {torch.__version__}"


def _few(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
