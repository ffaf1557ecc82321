"""Every detector, measured alike: clean, corrupted, cost, memory, and both sides attacked.

    python -m benchmarks.choosing clean|cost|attacked [NETWORK ...] [--detectors NAME,...]
    python -m benchmarks.choosing join FILE ...

Networks are those of the zoo, images the packs of ROOD_DATA and the folder ROOD_CIFAR10; those that
need a network of their own are measured on digits, which need nothing. Each detector adds a row to
docs/results/choosing.jsonl as soon as it is measured; what is there is not measured again. Runs
with an --out each may go side by side; `join` puts their rows together. `make generate` makes
docs/how-to/choose-detector.md of them.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import rood
from benchmarks.measure import RESULTS, ratio
from benchmarks.peers.openood import as_bilinear, without_shared
from rood import data
from rood.attacks.worst_of import Tier, WorstOf
from rood.corruptions import corrupt, names
from rood.data.base import ImageSet
from rood.detectors import Detector, OutputDetector, fit_all, registry, score_all
from rood.evaluation.division import divide
from rood.evaluation.plan import Plan
from rood.evaluation.run import run
from rood.evaluation.store import Results
from rood.metrics import auroc, false_alarm_at, threshold_at_tpr
from rood.models.model import Model
from rood.threat import as_threats
from rood_zoo.rows import Rows

FILE = RESULTS / "choosing.jsonl"
KEY = ("part", "network", "detector")
PACK = "npz:$ROOD_DATA/{}.npz"
SEVERITY = 3
BATCH = 100
INNER = ("ensemble", "deep_ensemble", "low_resolution")  # made of others: an example of them
WITHOUT = ("clip", "mcm", "neglabel")  # no weights of CLIP are to be had here

# on digits: the network each of these needs, and three to compare with on the classifiers
DIGITS = {
    "digits-autoencoder": ("autoencoder",),
    "digits-ccu": ("ccu",),
    "digits-certified": ("head",),
    "digits-glow": ("glow", "complexity"),
    "digits-jem": ("jem", "jem_gradient", "jem_softmax"),
    "digits-ce": ("energy", "knn", "vim"),
    "digits-aloe": ("energy", "knn", "vim"),
}
OWN = {d for n, ds in DIGITS.items() if n not in ("digits-ce", "digits-aloe") for d in ds}


@dataclass(frozen=True)
class Case:
    """A network, its images, and how many of each set are taken."""

    inside: str
    near: tuple[str, ...]
    far: tuple[str, ...]
    train: str | None = None  # None: as many of `inside` as it fits, which are not tested on
    fit: int = 10_000
    limit: int = 1000
    corrupted: int = 200  # of each kind
    eps: str = "1/255"
    attack: Tier = "standard"
    attacked: int = 32
    detectors: tuple[str, ...] = field(
        default_factory=lambda: tuple(n for n in registry.names() if n not in OWN | set(WITHOUT))
    )


SIGNS = Case(
    PACK.format("gtsrb_test5k"), (), ("svhn_test5k",),
    train=PACK.format("gtsrb_train8k"), attacked=48,
)  # fmt: skip
CLEAN = {
    "cifar10-ce": Case(
        "cifar10:test",
        near=("cifar100_test", "tinyimagenet_val_32"),
        far=("svhn_test5k", "dtd10_32", "scenes6_32", "mnist_test"),
        train="cifar10:train",
    )
} | {
    name: Case(
        "digits:inside", ("digits:near",), ("digits:patches",),
        fit=1000, limit=500, eps="0.1", detectors=found,
    )
    for name, found in DIGITS.items()
}  # fmt: skip
ATTACKED = {"gtsrb-aloe": SIGNS, "gtsrb-ce": replace(SIGNS, attacked=16)} | {
    name: case for name, case in CLEAN.items() if name.startswith("digits")
}


def make(name: str, model: Model) -> Detector:
    """With the defaults; of those that are made of others, the example."""
    entry = registry.get(name)
    made = entry.example(model) if name in INNER else entry(model)  # type: ignore[attr-defined]
    assert isinstance(made, Detector)
    return made


def read(spec: str, shape: tuple[int, int, int]) -> ImageSet:
    """A set of a case; of Tiny-ImageNet no class that CIFAR-10 has, halved bilinearly."""
    if ":" in spec:
        return data.load(spec, shape=shape)
    images = data.load(PACK.format(spec), shape=shape)
    return as_bilinear(without_shared(images)) if spec.startswith("tiny") else images


@dataclass(frozen=True)
class World:
    """The images of a case: none is in two of them."""

    fit: ImageSet
    calibrate: ImageSet
    inside: ImageSet
    outside: Mapping[str, ImageSet]

    @classmethod
    def of(cls, case: Case) -> "World":
        inside = data.load(case.inside)
        train = None if case.train is None else data.load(case.train)
        parts = divide(inside, train, ours=train is None)
        return cls(
            fit=parts["fit"].thin(case.fit),
            calibrate=parts["calibrate"].thin(case.limit),
            inside=parts["test"].thin(case.limit),
            outside={n: read(n, inside.shape).thin(case.limit) for n in (*case.near, *case.far)},
        )


def clean(network: str, case: Case, wanted: list[str]) -> Iterator[dict]:
    """AUROCs, and the share of corrupted ID images above the threshold that keeps 95 %."""
    model, world = rood.zoo.load(network), World.of(case)
    for group in together(wanted):
        detectors = {n: make(n, model) for n in group}
        fit_all(detectors.values(), world.fit.batches(BATCH, torch.device("cpu")))
        sets = {"calibrate": world.calibrate, "": world.inside, **world.outside}
        found = {n: scores(detectors, images) for n, images in sets.items()}
        for kind in names():
            few = world.inside.thin(case.corrupted)
            changed = corrupt(few.pixels(), kind, SEVERITY)
            found[kind] = scores(detectors, replace(few, images=changed))
        for d, made in detectors.items():
            yield (
                {"part": "clean", "network": network, "detector": d}
                | summary({n: s[d] for n, s in found.items()}, case)
                | {"labels": any(m.needs_labels for m in parts(made))}
                | {"fits": any(m.fitted_names for m in parts(made)), "kilobytes": kept(made)}
            )


def together(wanted: list[str]) -> list[list[str]]:
    """Those that share a forward pass in one group, any other in one of its own."""
    model = rood.zoo.load("digits-ce")
    shared = [
        n for n in wanted
        if n not in OWN and isinstance(make(n, model), OutputDetector)
    ]  # fmt: skip
    return [g for g in [shared, *([n] for n in wanted if n not in shared)] if g]


def parts(detector: Detector) -> Iterator[Detector]:
    """The detector and all inside it."""
    return (m for m in detector.modules() if isinstance(m, Detector))


def kept(detector: Detector) -> int:
    """What fitting left in memory."""
    state = detector.fitted_state().values()
    return round(sum(v.numel() * v.element_size() for v in state) / 1024)


@torch.no_grad()
def scores(detectors: Mapping[str, Detector], images: ImageSet) -> dict[str, np.ndarray]:
    """Every detector's scores of a set."""
    found: list[dict[str, Tensor]] = [
        score_all(detectors, x) for x, _ in images.batches(BATCH, torch.device("cpu"))
    ]
    return {n: torch.cat([f[n] for f in found]).double().numpy() for n in detectors}


def summary(found: Mapping[str, np.ndarray], case: Case) -> dict:
    """The numbers of one detector."""
    threshold = threshold_at_tpr(found["calibrate"])
    value = lambda n: round(auroc(inside=found[""], outside=found[n]), 5)
    alarms = {n: false_alarm_at(threshold, inside=found[n]) for n in ("", *names())}
    return {
        "near": {n: value(n) for n in case.near},
        "far": {n: value(n) for n in case.far},
        "false_alarms": alarms.pop(""),
        "corrupted": {n: round(v, 4) for n, v in alarms.items()},
        "severity": SEVERITY,
        "n": len(found[""]),
        "n_corrupted": len(found[names()[0]]),
    }


def cost(network: str, case: Case, wanted: list[str], images: int = 64, runs: int = 5):
    """Seconds of one score over those of a bare forward pass, in turns."""
    model, world = rood.zoo.load(network), World.of(replace(case, fit=1000))
    x = world.inside.thin(images).pixels()
    for name in wanted:
        detector = make(name, model)
        fit_all([detector], world.fit.batches(BATCH, torch.device("cpu")))
        with torch.no_grad():
            passes, spread = ratio(lambda d=detector: d.score(x), lambda: model(x), runs)
        yield {
            "part": "cost", "network": network, "detector": name, "passes": round(passes, 3),
            "spread": round(spread, 3), "images": len(x), "runs": runs,
        }  # fmt: skip


def attacked(network: str, case: Case, wanted: list[str]) -> Iterator[dict]:
    """AUROCs with one side attacked, and both, as an audit has them."""
    model, world = rood.zoo.load(network), World.of(case)
    (name,) = case.far
    for d in wanted:
        detector = make(d, model)
        fit_all([detector], world.fit.batches(BATCH, torch.device("cpu")))
        plan = Plan(
            detectors={network: {d: detector}},
            calibrate=world.calibrate,
            inside=world.inside.thin(case.attacked),
            outside={name: world.outside[name].thin(case.attacked)},
            threats=as_threats(case.eps),
            attack=WorstOf(tier=case.attack),
        )
        with tempfile.TemporaryDirectory() as folder:
            for _ in run(plan, Path(folder)):
                pass
            by_side = {r.side: r for r in Results(Path(folder)).find(metric="auroc")}
        both = by_side["both"]
        yield {
            "part": "attacked", "network": network, "detector": d, "dataset": name,
            "eps": case.eps, "attack": case.attack, "n": both.n_in,
            **{side: round(r.value, 5) for side, r in by_side.items()},
            "low": round(both.low, 5), "high": round(both.high, 5), "verdict": both.verdict,
        }  # fmt: skip


PARTS = {"clean": (clean, CLEAN), "cost": (cost, CLEAN), "attacked": (attacked, ATTACKED)}


def join(files: list[Path], out: Path) -> None:
    """Put the rows of several files into one, in the order of parts, networks and detectors."""
    there = [out] if out.exists() else []
    lines = [line for f in [*there, *files] for line in f.read_text().splitlines()]
    found = {tuple(row[k] for k in KEY): row for row in map(json.loads, lines)}  # the last one
    networks = list(CLEAN) + [n for n in ATTACKED if n not in CLEAN]
    place = lambda key: (list(PARTS).index(key[0]), networks.index(key[1]), key[2])
    out.write_text("".join(json.dumps(found[k]) + "\n" for k in sorted(found, key=place)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "join"])
    parser.add_argument("which", nargs="*", metavar="NETWORK", help="else all; of join, the files")
    parser.add_argument("--detectors", default="", help="by name, with commas; else all")
    parser.add_argument("--reverse", action="store_true", help="begin with the last one")
    parser.add_argument("--out", type=Path, default=FILE, help="file of rows")
    args = parser.parse_args()
    if args.part == "join":
        return join(list(map(Path, args.which)), args.out)
    measure, cases = PARTS[args.part]
    rows = Rows(args.out, KEY)
    for network in args.which or cases:
        case = cases[network]
        names = [
            n
            for n in (args.detectors.split(",") if args.detectors else case.detectors)
            if not rows.has(part=args.part, network=network, detector=n)
        ]
        for row in measure(network, case, names[::-1] if args.reverse else names):
            rows.write(**row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
