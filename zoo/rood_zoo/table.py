"""Measure how accurate and how robust every network of the zoo is; an interrupted run continues.

    python -m rood_zoo.table ['cifar10-*' ...] --zoo DIR --out FILE.jsonl [--device cuda]

DIR holds NAME.safetensors and NAME.json; the images are where ROOD_CIFAR10 and ROOD_DATA say. Every
number is a JSON line; `make generate` makes docs/evidence/zoo.md of those in docs/results/zoo.jsonl.

| stage | networks | measured |
|---|---|---|
| basic | all | accuracy, clean and under PGD-10; MSP and ODIN, clean and under ALOE's Algorithm 1 |
| strong | all but four of the ensemble | MSP under PGD-40 with 3 starts on its own score, ODIN on the same images; in STANDARD also the detectors of OWN |
| standard | STANDARD | MSP and the detectors of OWN under `WorstOf`, each through its own score |

Both sides are attacked; strong and standard use the sets of FAR. Attacks search in TF32, and what
they found is scored in float32.
"""  # noqa: E501

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import torch

from rood import data
from rood.attacks import PGD, Attack, WorstOf
from rood.data.base import ImageSet, Shape
from rood.detectors import GEN, MSP, ODIN, Detector, Energy, Entropy, Mirrored
from rood.device import pick_device
from rood.errors import InputError, RoodError
from rood.evaluation.attacked import attacked_scores
from rood.evaluation.manifest import full_precision
from rood.goals import misclassify
from rood.metrics import Interval, summary, wilson
from rood.models import checkpoint
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import Linf
from rood.training import recipe
from rood.training.job import parts
from rood_papers.aloe.goals import aloe_confidence
from rood_zoo.rows import Rows

KEY = ("network", "sha256", "measure", "detector", "dataset", "attack", "eps")
BATCH = 1000
STAGES = ("basic", "strong", "standard")
METRICS = ("auroc", "fpr95_in", "detection_error")
RESAMPLES = 200  # of a bootstrap that is made two thousand times
FAR = ("svhn", "dtd", "scenes", "near", "patches", "noise")  # unseen in every training
STANDARD = ("cifar10-aloe-8", "cifar10-aloe", "cifar10-adv-8", "cifar10-adv")
OWN = ("mirrored_msp", "mirrored_energy", "gen", "energy", "entropy")
ALIKE = "cifar10-ensemble-[1-4]"  # differ from member 0 by their seed
ETA = {"gtsrb": 0.0004, "cifar10": 0.0014, "cifar100": 0.0028}  # of ODIN, as ALOE chose it
SETS = {
    "svhn_test5k": "svhn",
    "dtd10_32": "dtd",
    "scenes6_32": "scenes",
    "tinyimagenet_val_32": "tiny-imagenet",
    "cifar100_test": "cifar-100",
    "cifar10_test": "cifar-10",
}
DIGITS = ("digits:near", "digits:patches", "digits:noise")
DIGITS_EPS = 0.1
BEYOND = 0.1  # in units of the score, past every clean image of the other side: TF32 is coarse


class Library:
    """Every image set, loaded to the device once."""

    def __init__(self, device: torch.device, limit: int | None) -> None:
        self.device, self.limit = device, limit
        self._known: dict[object, ImageSet] = {}

    def held_out(self, name: str, shape: Shape) -> ImageSet:
        """All test images of a network."""
        found = recipe.get(name)
        spec = found.held_out
        load = lambda: parts(found)["test"] if spec is None else data.load(spec, shape=shape)
        return self._once((spec or found.data, shape, "all"), load)

    def outside(self, name: str, shape: Shape) -> dict[str, ImageSet]:
        """The OOD sets of a network by their short names."""
        found = {}
        for spec in recipe.get(name).unseen or DIGITS:
            stem = Path(spec.partition(":")[2]).stem
            load = lambda spec=spec: data.load(spec, shape=shape, limit=self.limit)
            found[SETS.get(stem, stem)] = self._once((spec, shape), load)
        return found

    def _once(self, key: object, load: Callable[[], ImageSet]) -> ImageSet:
        if key not in self._known:
            images = load()
            self._known[key] = replace(images, images=images.images.to(self.device))
        return self._known[key]


@dataclass(frozen=True)
class Network:
    """A network with its images, all on the device."""

    name: str
    sha256: str
    model: Model
    held_out: ImageSet
    outside: Mapping[str, ImageSet]
    budgets: tuple[float, ...]  # all networks are attacked at the first; the last is its own

    @property
    def detectors(self) -> dict[str, Detector]:
        eta = ETA.get(self.name.partition("-")[0], 0.0014)
        return {
            "msp": MSP(self.model),
            "odin": ODIN(self.model, eta=eta),
            "gen": GEN(self.model),
            "energy": Energy(self.model),
            "entropy": Entropy(self.model),
            "mirrored_msp": Mirrored.msp(self.model),
            "mirrored_energy": Mirrored.energy(self.model),
        }

    def few(self, images: ImageSet, n: int) -> Images:
        """At most n images, evenly spaced."""
        return images.thin(n).pixels(images.images.device)


def opened(name: str, folder: Path, images: Library) -> Network:
    path = folder / f"{name}.safetensors"
    card = checkpoint.read_card(path)
    shape = tuple(card["shape"])
    held = images.held_out(name, shape)
    if held.classes and list(held.classes) != card["classes"]:
        raise InputError(f"expected held-out images of the classes of {name}, got {held.classes}")
    digits = name.startswith("digits")
    first = DIGITS_EPS if digits else 1 / 255
    own = first if digits else card["training"]["objective"].get("eps", first)
    return Network(
        name,
        card["sha256"][:12],
        checkpoint.load(path).to(images.device),
        held,
        images.outside(name, shape),
        tuple(dict.fromkeys((first, own))),
    )


# --- attacks ---


def suites() -> dict[str, tuple[Attack, str]]:
    """The adaptive attacks, each with the purpose of its random draws."""
    return {
        "pgd40x3": (PGD(steps=40, restarts=3), "pgd-40"),
        "standard": (WorstOf(), "standard"),
    }


def attacked(
    net: Network, attack: str, eps: float, x_in: Images, x_out: Images, climbed: str = "msp"
) -> tuple[Images, Images]:
    """Both sides after an attack; the adaptive ones climb the score of the detector `climbed`."""
    if attack == "clean":
        return x_in, x_out
    if attack == "algorithm1":
        return algorithm1(net, x_in, eps, inside=True), algorithm1(net, x_out, eps, inside=False)
    detector = net.detectors[climbed]
    suite, purpose = suites()[attack]
    past = {
        "inside": score(detector, x_out).max().item() + BEYOND,
        "outside": score(detector, x_in).min().item() - BEYOND,
    }

    def moved(x: Images, side: Literal["inside", "outside"]) -> Images:
        found = attacked_scores(
            *(detector, x, side, Linf(eps), suite),
            past=past[side],
            exemplars=x_in,
            purpose=(purpose,),
        )
        return found.images

    return moved(x_in, "inside"), moved(x_out, "outside")


def algorithm1(net: Network, x: Images, eps: float, *, inside: bool) -> Images:
    """ALOE's attack on the softmax, which every detector then judges."""
    attack = PGD.aloe()
    if eps > 10 / 255:  # ten steps of 1/255 would not get there
        attack = replace(attack, step=None)
    goal = aloe_confidence(net.model, inside)
    draws = lambda: generator(0, "algorithm 1")
    return torch.cat([attack(goal, part, Linf(eps), draws()) for part in x.split(BATCH)])


@full_precision()
@torch.no_grad()
def score(detector: Detector, x: Images) -> Scores:
    return torch.cat([detector.score(part) for part in x.split(BATCH)])


@full_precision()
@torch.no_grad()
def right(net: Network, x: Images, y: torch.Tensor) -> torch.Tensor:
    classes = [net.model(part).logits.argmax(dim=1) for part in x.split(BATCH)]
    return torch.cat(classes) == y.to(x.device)


# --- measures ---


def accuracy(net: Network, rows: Rows, n: int) -> None:
    """Accuracy on all held-out images, and under PGD-10 on n of them."""
    of = {"network": net.name, "sha256": net.sha256, "measure": "accuracy"}
    y = net.held_out.labels
    assert y is not None
    if not rows.has(**of, attack="clean", eps="0"):
        hits = right(net, net.held_out.pixels(net.model.mean.device), y)
        write_share(rows, hits, **of, attack="clean", eps="0")
    for eps in net.budgets:
        row = {**of, "attack": "pgd10", "eps": said(eps)}
        if rows.has(**row):
            continue
        some = net.held_out.thin(n)
        x, labels = net.few(net.held_out, n), some.labels.long()  # type: ignore[union-attr]
        found = []
        for part, label in zip(x.split(BATCH), labels.to(x.device).split(BATCH), strict=True):
            goal = misclassify(net.model, label)
            found.append(PGD(steps=10)(goal, part, Linf(eps), generator(0, "pgd-10")))
        write_share(rows, right(net, torch.cat(found), labels) & right(net, x, labels), **row)


def write_share(rows: Rows, hits: torch.Tensor, **row: object) -> None:
    n = len(hits)
    rows.write(**row, **rounded(wilson(hits.double().mean().item(), n)), n_in=n)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Detectors that judge the images of both sides after one attack."""

    attack: str
    eps: float
    climbed: str = "msp"
    judges: Sequence[str]
    measures: Mapping[str, str]  # metrics, and the names that rows give them


def compare(
    net: Network,
    rows: Rows,
    c: Comparison,
    x_in: Images,
    sets: Mapping[str, Images],
    **options: Any,
) -> None:
    """Write the rows of a comparison that are missing."""
    of = {"network": net.name, "sha256": net.sha256, "attack": c.attack, "eps": said(c.eps)}
    row = lambda judge, s, metric: (
        of
        | {
            "measure": c.measures[metric],
            "detector": judge,
            "dataset": s,
        }
    )
    lacks = lambda judge, s: not all(rows.has(**row(judge, s, m)) for m in c.measures)
    if not any(lacks(judge, s) for judge in c.judges for s in sets):
        return
    x_out = torch.cat([*sets.values()])
    found_in, found_out = attacked(net, c.attack, c.eps, x_in, x_out, c.climbed)
    for judge in c.judges:
        s_in, s_out = (score(net.detectors[judge], x).cpu() for x in (found_in, found_out))
        for s, part in zip(sets, s_out.split([len(x) for x in sets.values()]), strict=True):
            if not lacks(judge, s):
                continue
            values = summary(s_in, part, **options)
            for m in c.measures:
                n = {"n_in": len(s_in), "n_out": len(part)}
                rows.write(**row(judge, s, m), **rounded(values[m]), **n)


def comparisons(net: Network, stage: str) -> Iterator[Comparison]:
    """All comparisons of one stage."""
    usual: dict[str, Any] = {"measures": {m: m for m in METRICS}}
    if stage == "basic":
        usual["judges"] = ("msp", "odin")
        yield Comparison(attack="clean", eps=0.0, **usual)
        for eps in net.budgets:
            yield Comparison(attack="algorithm1", eps=eps, **usual)
        return
    attack, msp = ("pgd40x3", ("msp", "odin")) if stage == "strong" else ("standard", ("msp",))
    usual |= {"attack": attack, "eps": net.budgets[-1]}
    yield Comparison(judges=msp, **usual)
    for name in OWN if net.name in STANDARD else ():
        yield Comparison(climbed=name, judges=(name,), **usual)


def measure(net: Network, stage: str, rows: Rows, n: int) -> None:
    """Every number of one stage, on n images per set."""
    if stage == "basic":
        accuracy(net, rows, n)
    names = [s for s in net.outside if stage == "basic" or s in FAR]
    names = names if stage == "basic" else sorted(names, key=FAR.index)
    x_in, sets = net.few(net.held_out, n), {s: net.few(net.outside[s], n) for s in names}
    for c in comparisons(net, stage):
        compare(net, rows, c, x_in, sets, resamples=RESAMPLES)


def rounded(found: Interval) -> dict[str, float]:
    return {k: round(v, 6) for k, v in found._asdict().items()}


def said(eps: float) -> str:
    """As the threat writes it: 1/255, 0.1."""
    return str(Linf(eps)).partition(":")[2]


def chosen(patterns: list[str], folder: Path) -> list[str]:
    """Networks of the folder that have a recipe and match a pattern, in the order of recipes."""
    there = [n for n in recipe.names() if (folder / f"{n}.safetensors").exists()]
    found = [n for n in there if any(fnmatchcase(n, p) for p in patterns)]
    if not found:
        raise InputError(f"expected networks for {patterns} in {str(folder)!r}, got {there}")
    return found


def of_stage(stage: str, names: list[str]) -> list[str]:
    """The networks that a stage is worth its time for."""
    if stage == "standard":
        return [n for n in STANDARD if n in names]
    return [n for n in names if stage == "basic" or not fnmatchcase(n, ALIKE)]


def run(names: list[str], rows: Rows, args: argparse.Namespace) -> bool:
    """Every stage of every network; returns whether all succeeded."""
    images, good = Library(pick_device(args.device), args.images), True
    sizes = {"basic": args.images, "strong": args.strong, "standard": args.standard}
    end = time.perf_counter() + args.seconds
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for stage in args.stages:
        for name in of_stage(stage, names):
            start = time.perf_counter()
            if start > end:
                print(f"{name} {stage} left for another run", flush=True)
                continue
            try:
                measure(opened(name, args.zoo, images), stage, rows, sizes[stage])
            except RoodError as e:
                print(f"{name} {stage} failed: {e}", flush=True)
                good = False
            print(f"{name} {stage} {time.perf_counter() - start:.1f} s", flush=True)
    return good


def note_in_cards(path: Path, folder: Path) -> None:
    """Write robust accuracy into the cards of the networks that it was measured on."""
    found: dict[str, dict[str, Any]] = {}
    for r in map(json.loads, path.read_text().splitlines()):
        if (r["measure"], r.get("attack")) == ("accuracy", "pgd10"):
            found.setdefault(r["network"], {})[r["eps"]] = r
    for name, by_eps in found.items():
        card = folder / f"{name}.json"
        facts: dict[str, Any] = json.loads(card.read_text()) if card.exists() else {"sha256": ""}
        now = {e: r["value"] for e, r in by_eps.items() if facts["sha256"].startswith(r["sha256"])}
        if facts["sha256"] and now:
            facts["training"]["robust_accuracy"] = {"attack": "PGD-10 on the margin", **now}
            card.write_text(json.dumps(facts, indent=2) + "\n")


def stages(text: str) -> list[str]:
    """Some of STAGES, in their order."""
    named = text.split(",")
    if not set(named) <= set(STAGES):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(STAGES)}, got {text!r}")
    return [s for s in STAGES if s in named]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="names, or patterns as 'gtsrb-*'")
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000, help="images per set")
    parser.add_argument("--strong", type=int, default=250, help="of them under PGD-40 x3")
    parser.add_argument("--standard", type=int, default=200, help="of them under WorstOf")
    parser.add_argument("--stages", type=stages, default=list(STAGES), help=",".join(STAGES))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing after")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    rows, start = Rows(args.out, KEY), time.perf_counter()
    good = run(chosen(args.names, args.zoo), rows, args)
    on_gpu = pick_device(args.device).type == "cuda"
    rows.write(
        measure="setup",
        device=torch.cuda.get_device_name() if on_gpu else "a CPU",
        torch=torch.__version__.partition("+")[0],
        seconds=round(time.perf_counter() - start, 1),
    )
    note_in_cards(args.out, args.zoo)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
