r"""Every detector on CIFAR-10 ResNet-18s: clean AUROC beside OpenOOD's, then both sides attacked.

    python -m benchmarks.peers.openood train --seed N --cifar10 DIR --run DIR [--epochs 100]
    python -m benchmarks.peers.openood score --seed N --cifar10 DIR --run DIR --data DIR --out DIR

--cifar10 is the folder of CIFAR-10 as for `cifar10:train`; --data holds the packs cifar100_test,
tinyimagenet_val_32, svhn_test5k, dtd10_32, scenes6_32 and mnist_test. The network of a seed is in
DIR/seedN of --run; `score` writes a JSON line per number to detectors-cifar10-seedN.jsonl, from
which `make generate` makes docs/evidence/detectors.md. Runs of different seeds are independent.

Of OpenOOD's protocol it keeps the training settings, float32 with convolutions in TF32, torch's own
initial values, the best epoch on the validation images, and Tiny-ImageNet resized bilinearly.
"""

import argparse
import json
import math
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import conv2d, pad

from rood import data, tuning
from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.detectors import DICE, Detector, fit_all, registry, score_all
from rood.evaluation.plan import Plan
from rood.evaluation.run import run
from rood.evaluation.store import Results, Store
from rood.metrics import METRICS, auroc
from rood.models import backbones, checkpoint
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf
from rood.training.loop import Epoch, train
from rood.training.objectives import CrossEntropy
from rood.training.settings import Augment, Settings
from rood_papers.presets import OpenOODGram, OpenOODMDSEns
from rood_zoo.rows import Rows

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NET = "net.safetensors"
# what OpenOOD's training has; --he changes the initial values alone
PROTOCOL = "float32 and TF32, torch's initial values, best epoch"
HE = "float32 and TF32, He's initial values, best epoch"

# Tiny-ImageNet classes that show what a CIFAR-10 class shows: frogs, birds, dogs, cats, cars,
# trucks, boats
SHARED = {
    "n01641577", "n01644900", "n01855672", "n02002724", "n02056570", "n02058221",
    "n02085620", "n02094433", "n02099601", "n02099712", "n02106662", "n02113799",
    "n02123045", "n02123394", "n02124075", "n02814533", "n03100240", "n03447447",
    "n03662601", "n03670208", "n03796401", "n03977966", "n04285008", "n04487081",
}  # fmt: skip

# fitted on validation images, as OpenOOD does; all others on the training images
ON_VALIDATION = {"temperature_scaling", "react", "klm"}

# with OpenOOD's grids, those it sweeps; DICE's percentile it leaves at 90 (APS_mode off)
TUNED = ("odin", "knn", "gen", "react", "ash_b", "scale")

# what OpenOOD computes under the name of a detector that is defined otherwise here
PRESETS = {
    "gram_openood": OpenOODGram,
    "layered_mahalanobis_openood": OpenOODMDSEns,
}


# of DICE, around the 90 of all others: with ten classes, a tenth of the weights speaks for a class
PERCENTILES = (80.0, 85.0, 88.0, 89.0, 90.0, 91.0, 92.0, 93.0, 95.0)


# images of a far set; they are stand-ins
FAR_AT_MOST = 3000

# least squares over the rows of 250 photographs halved both ways: they differ by 2.79 grey levels
# in the mean, and by 0.27 after it
SOFTER = (0.0057, 0.0679, 0.8533, 0.0679, 0.0057)


# need a network of their own
NOT_OF_A_CLASSIFIER = {
    "autoencoder", "ccu", "clip", "complexity", "glow", "jem", "jem_gradient", "jem_softmax", "mcm",
    "neglabel",
}  # fmt: skip


def cifar10(folder: Path) -> tuple[ImageSet, ImageSet]:
    """All 50,000 training and 10,000 test images."""
    train, test = (data.load(f"cifar10:{part}@{folder}") for part in ("train", "test"))
    return train, test


def fresh(seed: int = 0, *, he: bool = False) -> Model:
    net = backbones.create("resnet18", classes=10, seed=seed)
    if not he:
        start_as_torch_does(net, generator(seed, "torch's initial values"))
    return wrap(net, mean=MEAN, std=STD)


@torch.no_grad()
def start_as_torch_does(net: nn.Module, source: torch.Generator) -> None:
    """Every weight and bias uniform within 1 / sqrt(fan in), as OpenOOD's networks begin."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for values in layer.parameters(recurse=False):
                values.uniform_(-bound, bound, generator=source)


def run_training(args: argparse.Namespace) -> None:
    images, test = cifar10(args.cifar10)
    validation, _ = held_out(test)
    model = fresh(args.seed, he=args.he)
    settings = Settings(
        seed=args.seed, epochs=args.epochs, batch_size=128, lr=0.1, weight_decay=5e-4,
        augment=Augment(shift=4, flip=True), half=False,
        graph=args.device.startswith("cuda"), compile=args.compile,
    )  # fmt: skip
    start = time.perf_counter()
    epochs = train(
        model, CrossEntropy(), images, settings=settings, device=args.device, held_out=validation
    )
    best = keep_best(model, epochs)
    card = {
        "shape": [3, 32, 32],
        "classes": list(images.classes),
        "epochs": args.epochs,
        "best": best.epoch,
        "validation": best.accuracy,
        "seconds": time.perf_counter() - start,
        "protocol": HE if args.he else PROTOCOL,
    }
    checkpoint.save(model.cpu().to(memory_format=torch.contiguous_format), folder(args) / NET, card)


def keep_best(model: Model, epochs: Iterable[Epoch]) -> Epoch:
    """Train to the end, then go back to the epoch that was best; of equals the later one."""
    best = None
    for e in epochs:
        print(
            f"epoch {e.epoch} loss {e.loss:.4f} accuracy {e.accuracy:.4f} {e.seconds:.2f} s",
            flush=True,
        )
        if best is None or e.accuracy >= best.accuracy:
            best = e
            weights = {name: values.clone() for name, values in model.state_dict().items()}
    model.load_state_dict(weights)
    return best


def folder(args: argparse.Namespace) -> Path:
    """The folder of the network of this seed."""
    return args.run / f"seed{args.seed}"


def held_out(images: ImageSet) -> tuple[ImageSet, ImageSet]:
    """1,000 images to tune on, the same for every network, and the others."""
    order = torch.randperm(len(images), generator=generator(0, "validation"))
    return images.take(order[:1000]), images.take(order[1000:])


def packs(folder: Path) -> tuple[ImageSet, dict[str, ImageSet]]:
    """Outliers to tune on and sets to test on; both take Tiny-ImageNet's validation images."""
    load = lambda name: data.load(f"npz:{folder / name}.npz", shape=(3, 32, 32))
    outliers, tin = held_out(without_shared(load("tinyimagenet_val_32")))
    far = ("svhn_test5k", "dtd10_32", "scenes6_32", "mnist_test")
    far_sets = zip(("svhn", "texture", "scenes", "mnist"), map(load, far), strict=True)
    return as_bilinear(outliers), {
        "cifar100": load("cifar100_test"),
        "tin": as_bilinear(tin),
        "tin_bicubic": tin,
        **{name: images.thin(FAR_AT_MOST) for name, images in far_sets},
    }


def as_bilinear(images: ImageSet) -> ImageSet:
    """What bilinear halving would have made of images that were halved bicubically, by Pillow.

    One is the other after SOFTER along both axes, to 0.3 of a grey level in the mean: they differ
    in how much they sharpen, and first layers see that. OpenOOD halves Tiny-ImageNet bilinearly.
    """
    row = torch.tensor(SOFTER)
    kernel = torch.outer(row, row).expand(3, 1, -1, -1)
    around = pad(images.images.float(), (2, 2, 2, 2), mode="replicate")
    softer = conv2d(around, kernel.contiguous(), groups=3).round().clamp(0, 255)
    return replace(images, images=softer.to(torch.uint8))


def without_shared(images: ImageSet) -> ImageSet:
    kept = torch.tensor([images.classes[i] not in SHARED for i in images.labels.tolist()])
    return images.take(kept)


def scores(detectors: dict[str, Detector], images: ImageSet, device: torch.device) -> dict:
    parts = []
    for x, _ in images.batches(500, device):
        with torch.no_grad():
            parts.append({n: s.cpu() for n, s in score_all(detectors, x).items()})
    return {n: torch.cat([p[n] for p in parts]).numpy() for n in detectors}


def run_scoring(args: argparse.Namespace) -> None:
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = checkpoint.load(folder(args) / NET).to(device)
    fit_images, test = cifar10(args.cifar10)
    fit_images = fit_images.thin(args.fit)
    validation, test = held_out(test)
    outliers, outside = packs(args.data)
    path = args.out / f"detectors-cifar10-seed{args.seed}.jsonl"
    path.unlink(missing_ok=True)  # numbers are measured anew; the attacks continue
    rows = Rows(path, ("kind", "detector", "dataset", "percentile"), seed=args.seed)
    rows.write(**setup(args, fit_images, validation, outliers))
    usual = [n for n in registry.names() if n not in NOT_OF_A_CLASSIFIER]
    names = args.detectors.split(",") if args.detectors else [*usual, *PRESETS]
    options = tuned(names, model, validation, outliers, fit_images, rows)
    detectors = {n: make(n, model, options) for n in names}
    on_validation = [d for n, d in detectors.items() if n in ON_VALIDATION]
    fit_all(on_validation, validation.batches(500, device))
    rest = [d for n, d in detectors.items() if n not in ON_VALIDATION]
    start = time.perf_counter()
    fit_all(rest, fit_images.batches(500, device))
    print(f"fitted in {time.perf_counter() - start:.1f} s", flush=True)
    clean_rows(detectors, test.thin(args.limit), outside, device, rows, args)
    percentile_rows(model, fit_images, test.thin(args.limit), outside, device, rows)
    if not args.no_attack:
        sets = {name: outside[name] for name in args.attack_sets.split(",")}
        attack_rows(detectors, validation, test, sets, rows, args.attacked)


def setup(args, fit_images, validation, outliers) -> dict:
    """The conditions, for the page."""
    card = json.loads((folder(args) / NET).with_suffix(".json").read_text())
    on_gpu = args.device.startswith("cuda")
    return {
        "kind": "setup",
        "epochs": card["epochs"],
        "best": card.get("best", card["epochs"]),
        "seconds": round(card["seconds"]),
        "protocol": card.get("protocol", "bfloat16, He's initial values"),
        "fit": len(fit_images),
        "validation": len(validation),
        "outliers": len(outliers),
        "outliers_of": "Tiny-ImageNet validation",
        "torch": torch.__version__.split("+")[0],
        "device": torch.cuda.get_device_name() if on_gpu else "a CPU",
    }


def make(name: str, model: Model, options: dict[str, dict]) -> Detector:
    if name in PRESETS:
        return PRESETS[name](model)
    entry = registry.get(name)
    if name in ("ensemble", "deep_ensemble", "low_resolution"):
        return entry.example(model)
    return entry(model, **options.get(name, {}))


def tuned(names, model, validation, outliers, fit_images, rows) -> dict[str, dict]:
    options = {}
    for name in TUNED:
        if name not in names:
            continue
        grid = tuning.GRIDS[f"openood/{name}"]
        values = []
        for trial in tuning.trials(
            registry.get(name), model, grid,
            train=validation if name in ON_VALIDATION else fit_images,
            inside=validation, outside=outliers, batch_size=500,
        ):  # fmt: skip
            values.append([trial.options, round(trial.value, 5)])
            options[name] = trial.best.options
        rows.write(kind="tuned", detector=name, options=options[name], tried=values)
    return options


def clean_rows(detectors, test, outside, device, rows, args) -> None:
    inside = scores(detectors, test, device)
    right = sum(
        int((model_logits(detectors, x).argmax(1) == y).sum()) for x, y in test.batches(500, device)
    )
    rows.write(kind="accuracy", value=right / len(test), n=len(test))
    for name, images in outside.items():
        found = scores(detectors, images.thin(args.limit), device)
        for d in detectors:
            values = {
                m: METRICS[m](inside=inside[d], outside=found[d])
                for m in ("auroc", "fpr95_out", "fpr95_in")
            }
            rows.write(
                kind="clean", detector=d, dataset=name,
                n_in=len(inside[d]), n_out=len(found[d]), **values,
            )  # fmt: skip


def percentile_rows(model, fit_images, test, outside, device, rows) -> None:
    """DICE's AUROC by percentile."""
    detectors = {f"{p:g}": DICE(model, percentile=p) for p in PERCENTILES}
    fit_all(detectors.values(), fit_images.batches(500, device))
    inside = scores(detectors, test, device)
    for name in ("cifar100", "tin"):
        found = scores(detectors, outside[name].thin(len(test)), device)
        for p in detectors:
            value = auroc(inside=inside[p], outside=found[p])
            rows.write(kind="percentile", percentile=float(p), dataset=name, auroc=value)


@torch.no_grad()
def model_logits(detectors, x):
    return next(iter(detectors.values())).model(x).logits


def attack_rows(
    detectors: dict[str, Detector],
    validation: ImageSet,
    test: ImageSet,
    outside: dict[str, ImageSet],
    rows: Rows,
    n: int,
) -> None:
    """AUROC with both sides attacked by PGD-100: on the score alone, and with its surrogates."""
    threat, network = Linf(8 / 255), "resnet18"
    plan = Plan(
        detectors={network: detectors},
        calibrate=validation,
        inside=test.thin(n),
        outside={name: images.thin(n) for name, images in outside.items()},
        threats=[threat],
        attack=PGD(steps=100),
        sides=("both",),
    )
    place = rows.path.with_suffix(".audit")
    for step in run(plan, place):
        print(step.label, flush=True)
    found, store = Results(place), Store(place)
    scenario = f"{plan.attack_name()} {threat}"
    for dataset in outside:
        for name, d in detectors.items():
            own = lambda side, name=name: store.read(
                ("scores", network, name, f"{side} {scenario}")
            )[0]["direct"]
            of = {"detector": name, "dataset": dataset, "metric": "auroc"}
            (clean,) = found.find(**of, side="none")
            (worst,) = found.find(**of, side="both")
            rows.write(
                kind="attacked", detector=name, dataset=dataset, n=worst.n_in, clean=clean.value,
                own=auroc(inside=own("inside"), outside=own(dataset)), worst=worst.value,
                high=worst.high, gradient=d.gradient, verdict=worst.verdict,
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=("train", "score"))
    for name in ("--cifar10", "--data", "--run", "--out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--compile", action="store_true", help="the network that is trained")
    parser.add_argument("--he", action="store_true", help="train from He's initial values")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--fit", type=int, default=50_000)
    parser.add_argument("--no-attack", action="store_true")
    parser.add_argument("--attack-sets", default="cifar100")
    parser.add_argument("--attacked", type=int, default=200)
    parser.add_argument("--detectors", default="", help="some, by name, with commas; else all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    run_training(args) if args.job == "train" else run_scoring(args)


if __name__ == "__main__":
    main()
