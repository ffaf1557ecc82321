"""What helps a scalar head under attack: one change a row, everything else equal.

    python -m rood_zoo.ablation ['seven steps' ...] --out FILE.jsonl [--epochs 20] [--device cuda]

Each of CHANGES is trained as BASE is, but shorter and with a ResNet-18, and measured on the images that choose
(`rood_zoo.heads`): clean, and with both sides attacked at its eps by WorstOf(tier="quick") through `mirrored_head`.
No image of svhn, dtd or scenes is read. What is there is not measured again; `make generate` shows the rows in
docs/evidence/robust-head.md.
"""  # noqa: E501

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rood import data
from rood.attacks import WorstOf
from rood.data.base import ImageSet
from rood.detectors import MirroredHead
from rood.device import pick_device
from rood.metrics import summary
from rood.models.model import Model
from rood.training import job, outliers, recipe
from rood.training.loop import accuracy_of, train
from rood.training.recipe import Recipe
from rood_zoo.heads import choosing, moved
from rood_zoo.rows import Rows
from rood_zoo.table import RESAMPLES, rounded, score

BASE, CHOOSING = "cifar10-joint-8", "npz:$ROOD_DATA/cifar100_test.npz"
KEY = ("change", "epochs", "measure")
SMALL = {"architecture": {"scored": True}}
NATURAL = """npz:$ROOD_DATA/cifar100_train25k.npz,npz:$ROOD_DATA/cifar100_train25k_b.npz,\
npz:$ROOD_DATA/tinyimagenet_train_32.npz"""
# fields of the recipe, or a table of those of the objective or the settings that change
CHANGES: dict[str, Mapping[str, Any]] = {
    "base": {},
    "seven steps": {"objective": {"steps": 7, "step": 2.5 / 255}},
    "three quarters climb the head": {"objective": {"through_head": 0.75}},
    "all climb the head": {"objective": {"through_head": 1.0}},
    "outliers weigh twice": {"objective": {"weight": 2.0}},
    "trained at 10/255": {"objective": {"eps": 10 / 255, "step": 3.75 / 255}},
    "natural outliers alone": {"outliers": NATURAL},
    "a third of the natural outliers": {"outliers": "npz:$ROOD_DATA/cifar100_train25k.npz"},
    "two outliers an image": {"settings": {"outlier_batch": 1024}},
    "weight decay 2e-4": {"settings": {"weight_decay": 2e-4}},
    "EMA 0.999": {"settings": {"ema": 0.999}},
    "stages of 2, 4, 6, 1 blocks": {"architecture": {"scored": True, "depths": [2, 4, 6, 1]}},
    "another seed": {"settings": {"seed": 1}},
}


def changed(base: Recipe, change: Mapping[str, Any], epochs: int) -> Recipe:
    """The recipe of a row."""
    fields = {**SMALL, **change}
    objective = replace(base.objective, **fields.pop("objective", {}))
    settings = replace(base.settings, epochs=epochs, **fields.pop("settings", {}))
    return replace(base, objective=objective, settings=settings, **fields)


class Images:
    """The images of all rows, each read once."""

    def __init__(self, base: Recipe) -> None:
        self.base, self.parts = base, job.parts(base)
        shape = self.parts["fit"].shape
        self.unseen = [*(data.load(s, shape=shape) for s in base.unseen), self.parts["test"]]
        self.near = data.load(CHOOSING, shape=shape)
        self._outliers: dict[str, ImageSet] = {}

    def outliers(self, spec: str | None) -> ImageSet:
        """The outliers of a row, without images that are tested on."""
        assert spec is not None
        if spec not in self._outliers:
            self._outliers[spec] = outliers.load(spec, self.parts["fit"], self.unseen)
        return self._outliers[spec]


def trained(wanted: Recipe, images: Images, device: torch.device) -> tuple[Model, float]:
    """The network and the loss of its last epoch."""
    model, loss = job.start(wanted, images.parts["fit"]), float("nan")
    epochs = train(
        *(model, wanted.objective, images.parts["fit"]),
        outliers=images.outliers(wanted.outliers),
        settings=wanted.settings,
        device=device,
    )
    for epoch in epochs:
        loss = epoch.loss
        print(f"  {epoch.epoch} loss {loss:.4f} {epoch.seconds:.1f} s", flush=True)
    return model, loss


def measure(name: str, images: Images, rows: Rows, args: argparse.Namespace) -> None:
    """Train one row and write its numbers."""
    of = {"change": name, "epochs": args.epochs}
    if rows.has(**of, measure="both"):
        return
    device, start = pick_device(args.device), time.perf_counter()
    wanted = changed(images.base, CHANGES[name], args.epochs)
    model, loss = trained(wanted, images, device)
    seconds = time.perf_counter() - start
    eps = images.base.objective.eps  # type: ignore[attr-defined]
    judge = MirroredHead(model)
    x_in, x_out = (choosing(s, args.images).to(device) for s in (images.parts["test"], images.near))
    bad_in, bad_out = moved(judge, WorstOf(tier="quick"), eps, x_in, x_out, "ablation")
    scores = {
        "clean": (score(judge, x_in), score(judge, x_out)),
        "both": (score(judge, bad_in), score(judge, bad_out)),
    }
    right = accuracy_of(model, images.parts["test"])
    rows.write(**of, measure="training", value=loss, seconds=round(seconds), accuracy=right)
    for measured, (inside, outside) in scores.items():
        value = summary(inside.cpu(), outside.cpu(), resamples=RESAMPLES)["auroc"]
        rows.write(**of, measure=measured, **rounded(value), n_in=len(x_in), n_out=len(x_out))
        print(f"{name}: {measured} {value.value:.4f}, accuracy {right:.4f}", flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(CHANGES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--images", type=int, default=1000, help="images of each side")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    images, rows = Images(recipe.get(BASE)), Rows(args.out, KEY)
    for name in args.names:
        print(name, flush=True)
        measure(name, images, rows, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
