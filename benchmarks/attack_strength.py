"""How strong `WorstOf` is, beside the papers' attacks and beside PGD-1000 with five restarts.

    python -m benchmarks.attack_strength train plain --cifar10 DIR --networks DIR --data DIR
    python -m benchmarks.attack_strength matrix plain --networks DIR --data DIR --out DIR
    python -m benchmarks.attack_strength cost plain --networks DIR --data DIR --out DIR

`train` writes plain, adv and aloe.safetensors to --networks; CIFAR-10 is in --cifar10. --data holds
the packs cifar10_test, cifar100_test, svhn_test5k and, for ALOE's outliers, tinyimagenet_train5k_32
and cifar100_train25k. `make generate` makes docs/evidence/attack-strength.md of the rows.

Strength is counted in goal units up to `enough`: an image that has passed every clean image of the
other side cannot change a rank any more.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.openood import MEAN, STD, cifar10, without_shared
from rood import data
from rood.analysis.matching import features, match
from rood.attacks import APGD, PGD, FeatureMatch
from rood.attacks.base import Attack, Goal
from rood.attacks.worst_of import WorstOf
from rood.data.base import ImageSet, split
from rood.detectors import fit_all, registry
from rood.detectors.base import Detector
from rood.evaluation.manifest import full_precision
from rood.evaluation.tasks import metered
from rood.goals import look_in, look_out
from rood.metrics import auroc, summary
from rood.models import checkpoint
from rood.models.backbones import create
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import Noise, generator
from rood.shapes import Images
from rood.threat import Linf, Threat
from rood.training.loop import train
from rood.training.objectives import Objective
from rood.training.objectives.adv import ADV
from rood.training.objectives.aloe import ALOE
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.settings import Augment, Settings
from rood_papers.aloe.goals import aloe_confidence
from rood_papers.presets import aloe_official
from rood_zoo.rows import Rows

TEN = ("msp", "entropy", "gen", "energy", "odin", "mahalanobis", "relative_mahalanobis", "knn",
       "vim", "pro_msp")  # fmt: skip
THREE = ("msp", "mahalanobis", "knn")
EPS = {"plain": 1 / 255, "adv": 8 / 255, "aloe": 8 / 255}
OUTSIDE = {"cifar100": "cifar100_test", "svhn": "svhn_test5k"}


INNER = {"eps": 8 / 255, "steps": 6, "step": 8 / 255 / 3}
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


def run_training(args: argparse.Namespace) -> None:
    """Train one of three small networks; an interrupted run continues."""
    images, test = cifar10(args.cifar10)
    model = wrap(create("wide_resnet", classes=10, depth=16, widen=2), mean=MEAN, std=STD)
    objective = OBJECTIVES[args.network]
    settings = Settings(
        epochs=args.epochs, batch_size=256, outlier_batch=256, lr=0.2, warmup=0.15,
        augment=Augment(shift=4, flip=True),
    )  # fmt: skip
    start = time.perf_counter()
    for e in train(
        model, objective, images,
        outliers=outliers(args.data) if objective.needs_outliers else None,
        settings=settings, out=args.networks / f"{args.network}-state", held_out=test,
        device=args.device,
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
    checkpoint.save(model, args.networks / f"{args.network}.safetensors", card)


class Bench:
    """One network, its fitted detectors, and the images of both sides."""

    def __init__(self, name: str, args: argparse.Namespace, detectors: tuple[str, ...]) -> None:
        self.name, self.n, self.threat = name, args.n, Linf(EPS[name])
        device = torch.device(args.device)
        self.model: Model = checkpoint.load(args.networks / f"{name}.safetensors").to(device)
        load = lambda pack: data.load(f"npz:{args.data / pack}.npz", shape=(3, 32, 32))
        parts = split(load("cifar10_test"), "", fit=0.7, exemplars=0.1, test=0.2)
        self.detectors = {d: registry.get(d)(self.model) for d in detectors}
        fit_all(self.detectors.values(), parts["fit"].batches(500, device))
        self.exemplars = parts["exemplars"].thin(200).pixels(device)
        self.inside = parts["test"].thin(args.n).pixels(device)
        self.outside = {d: load(p).thin(args.n).pixels(device) for d, p in OUTSIDE.items()}

    def goals(self, detector: Detector, dataset: str) -> Iterator[tuple[str, Goal, Images]]:
        """Both sides, each with the value beyond which no rank changes."""
        x_in, x_out = self.inside, self.outside[dataset]
        with torch.no_grad():
            top, low = detector.score(x_out).max().item(), detector.score(x_in).min().item()
        yield "inside", replace(look_out(detector), enough=top), x_in
        yield "outside", replace(look_in(detector, self.exemplars), enough=-low), x_out


Climb = Callable[[Goal, Images, Threat, torch.Generator], Images]


def attack(
    climb: Climb, goal: Goal, x: Images, bench: Bench, *purpose: str
) -> tuple[torch.Tensor, dict[str, float]]:
    """The goal reached, capped at `enough`, measured again on what came back; and the cost."""
    start = time.perf_counter()
    with metered(bench.model) as cost:
        found = climb(goal, x, bench.threat, generator(0, *purpose))
    assert bench.threat.contains(found, x).all()
    with torch.no_grad():
        value = goal(found).clamp(max=goal.enough)
    return value, {
        "forwards": cost.forwards / len(x),
        "backwards": cost.backwards / len(x),
        "seconds": time.perf_counter() - start,
    }


def both(values: dict[str, torch.Tensor]) -> dict[str, float]:
    """AUROC with both sides attacked, and its interval."""
    found = summary(values["inside"].cpu().numpy(), -values["outside"].cpu().numpy())["auroc"]
    return {"auroc": found.value, "low": found.low, "high": found.high}


def of(args: argparse.Namespace) -> Rows:
    """The rows of one job and network; an interrupted run continues."""
    path = args.out / f"attack-strength-{args.job}-{args.network}.jsonl"
    return Rows(path, ("network", "detector", "dataset", "attack"))


def run_matrix(args: argparse.Namespace) -> None:
    """`standard` beside the papers' attacks, on every network, detector and dataset."""
    rows = of(args)
    bench = Bench(args.network, args, TEN)
    for dataset in args.datasets:
        for name, detector in bench.detectors.items():
            facts = {"network": args.network, "detector": name, "dataset": dataset}
            if not rows.has(**facts, attack="standard"):
                matrix_row(bench, detector, dataset, facts, rows)


def matrix_row(bench: Bench, detector: Detector, dataset: str, facts: dict, rows: Rows) -> None:
    with torch.no_grad():
        x_in, x_out = bench.inside, bench.outside[dataset]
        clean = auroc(inside=detector.score(x_in), outside=detector.score(x_out))
    names = ("standard", *presets(detector, True, bench))
    values: dict[str, dict[str, torch.Tensor]] = {n: {} for n in names}
    costs: dict[str, list[dict[str, float]]] = {n: [] for n in names}
    for side, goal, x in bench.goals(detector, dataset):
        climbs = {"standard": WorstOf()} | presets(detector, side == "inside", bench)
        for name in names:
            values[name][side], cost = attack(climbs[name], goal, x, bench, name, side)
            costs[name].append(cost)
    for name in reversed(names):  # `standard` last: it marks the row as done
        rows.write(
            **facts, attack=name, n=bench.n, eps=round(255 * bench.threat.eps), clean=clean,
            **both(values[name]), **mean(costs[name]), stronger=stronger(values, name),
        )  # fmt: skip


def presets(detector: Detector, inside: bool, bench: Bench) -> dict[str, Climb]:
    """The attacks of the papers: their own goals, on the way to ours.

    ALOE's Algorithm 1 moves the softmax, as written and as coded; FORT takes steps of 3e-4 along
    the sign of the score's gradient; LIANG matches the features of an in-distribution image.
    """
    model = bench.model

    def aloe(a: PGD) -> Climb:
        return lambda goal, x, threat, g: a(aloe_confidence(model, inside), x, threat, g)

    def fort(goal: Goal, x: Images, threat: Threat, g: torch.Generator) -> Images:
        steps = round(threat.eps / 3e-4)
        return PGD(steps=steps, step=3e-4, random_start=False)(goal, x, threat, g)

    def liang(goal: Goal, x: Images, threat: Threat, g: torch.Generator) -> Images:
        with torch.no_grad():
            codes = model(bench.exemplars).features
        targets = codes[torch.arange(len(x), device=x.device) % len(codes)]
        # an in-distribution image that wants out matches nothing in particular: no features at all
        targets = targets * 0 if inside else targets
        return FeatureMatch(steps=100)(match(features(model), targets), x, threat, g)

    return {
        "aloe": aloe(PGD.aloe()),
        "aloe_official": aloe(aloe_official()),
        "fort": fort,
        "liang": liang,
        "pgd40": PGD(steps=40),
    }


def stronger(values: dict[str, dict[str, torch.Tensor]], name: str) -> dict[str, float]:
    """Share of images of each side on which `standard` is at least as strong as `name`."""
    shares = {}
    for side, reached in values["standard"].items():
        slack = 1e-4 * reached.std().item()  # rounding
        shares[side] = (reached >= values[name][side] - slack).float().mean().item()
    return shares


def run_cost(args: argparse.Namespace) -> None:
    """What strength costs: tiers of `WorstOf` beside PGD of ever more steps and restarts."""
    rows = of(args)
    bench = Bench(args.network, args, THREE)
    for name, detector in bench.detectors.items():
        facts = {"network": args.network, "detector": name, "dataset": "cifar100"}
        for label, a in contenders().items():
            if rows.has(**facts, attack=label):
                continue
            values, costs = {}, []
            for side, goal, x in bench.goals(detector, "cifar100"):
                values[side], cost = attack(a, goal, x, bench, name, label, side)
                costs.append(cost)
            eps = round(255 * bench.threat.eps)
            rows.write(**facts, attack=label, n=bench.n, eps=eps, **both(values), **mean(costs))


def contenders() -> dict[str, Climb]:
    return {
        "quick": WorstOf(tier="quick"),
        "standard": WorstOf(),
        "apgd 100": APGD(steps=100),
        "pgd 20": PGD(steps=20),
        "pgd 100": PGD(steps=100),
        "pgd 1000": PGD(steps=1000),
        "pgd 1000 x5": side_by_side(PGD(steps=1000), 5),
    }


def side_by_side(a: Attack, restarts: int) -> Climb:
    """All restarts in one batch, which keeps a GPU busy: the same attack, sooner."""

    def climb(goal: Goal, x: Images, threat: Threat, g: torch.Generator) -> Images:
        noise = Noise(x, g)
        many = x.repeat(restarts, 1, 1, 1)
        starts = torch.cat([x + threat.sample(noise) for _ in range(restarts)])
        found = a(goal.begin(starts), many, threat, g)
        with torch.no_grad():
            best = goal(found).view(restarts, len(x)).argmax(dim=0)
        return found[best * len(x) + torch.arange(len(x), device=x.device)]

    return climb


def mean(costs: list[dict[str, float]]) -> dict[str, float]:
    return {k: round(float(np.mean([c[k] for c in costs])), 2) for k in costs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=("train", "matrix", "cost"))
    parser.add_argument("network", choices=EPS)
    for name in ("--networks", "--data"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--out", "--cifar10"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--datasets", nargs="+", choices=OUTSIDE, default=[*OUTSIDE])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.job == "train":
        return run_training(args)
    with full_precision():
        run_matrix(args) if args.job == "matrix" else run_cost(args)


if __name__ == "__main__":
    main()
