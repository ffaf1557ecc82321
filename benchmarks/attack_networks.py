"""Three small CIFAR-10 networks to measure attacks on: plain, ADV and ALOE, both at 8/255.

    python -m benchmarks.attack_networks plain --cifar10 DIR --data DIR --run DIR

writes DIR/plain.safetensors. DIR of --cifar10 is that of `benchmarks.peers.openood`; --data
holds the packs tinyimagenet_train5k_32 and cifar100_train25k, the outliers of ALOE.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks.peers.openood import MEAN, STD, cifar10, without_shared
from rood import data
from rood.data.base import ImageSet
from rood.models import backbones, checkpoint
from rood.models.wrap import wrap
from rood.training.loop import train
from rood.training.objectives import Objective
from rood.training.objectives.adv import ADV
from rood.training.objectives.aloe import ALOE
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.settings import Augment, Settings

EPS = 8 / 255
INNER = {"eps": EPS, "steps": 6, "step": EPS / 3}
OBJECTIVES: dict[str, Objective] = {
    "plain": CrossEntropy(),
    "adv": ADV(**INNER),
    "aloe": ALOE(**INNER),
}


def outliers(folder: Path) -> ImageSet:
    """Tiny-ImageNet and CIFAR-100 training images; classes that CIFAR-10 has too are left out."""
    tin = without_shared(data.load(f"npz:{folder / 'tinyimagenet_train5k_32'}.npz"))
    c100 = data.load(f"npz:{folder / 'cifar100_train25k'}.npz")
    return ImageSet("outliers", torch.cat([tin.images, c100.images]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=OBJECTIVES)
    for name in ("--cifar10", "--data", "--run"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    images, test = cifar10(args.cifar10)
    net = backbones.create("wide_resnet", classes=10, depth=16, widen=2)
    model = wrap(net, mean=MEAN, std=STD)
    objective = OBJECTIVES[args.network]
    settings = Settings(
        epochs=args.epochs,
        batch_size=256,
        outlier_batch=256,
        lr=0.2,
        warmup=0.15,
        augment=Augment(shift=4, flip=True),
    )
    start = time.perf_counter()
    for e in train(
        model, objective, images,
        outliers=outliers(args.data) if objective.needs_outliers else None,
        settings=settings, out=args.run / f"{args.network}-state", held_out=test,
        device="cuda" if torch.cuda.is_available() else "cpu",
    ):  # fmt: skip
        print(f"{args.network} {e.epoch} {e.loss:.4f} {e.accuracy:.4f} {e.seconds:.2f}", flush=True)
    card = {
        "shape": [3, 32, 32],
        "classes": list(images.classes),
        "objective": args.network,
        "accuracy": e.accuracy,
        "seconds": round(time.perf_counter() - start, 1),
    }
    model = model.cpu().to(memory_format=torch.contiguous_format)
    checkpoint.save(model, args.run / f"{args.network}.safetensors", card)


if __name__ == "__main__":
    main()
