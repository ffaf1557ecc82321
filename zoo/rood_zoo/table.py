"""How good and how robust every network of the zoo is; cut off, it goes on where it stopped.

    python -m rood_zoo.table ['cifar10-*' ...] --zoo DIR --out FILE.jsonl [--device cuda]

DIR holds NAME.safetensors and NAME.json for names of recipes.toml; the images are where
ROOD_CIFAR10 and ROOD_DATA say. One JSON line a number; `make docs` makes docs/zoo.md of those in
docs/results/zoo.jsonl.

Measured of every network: accuracy on all held-out images, and under PGD-10; MSP and ODIN, clean
and under ALOE's Algorithm 1, on every OOD set. Of all but four alike members of the ensemble: MSP
under PGD-40 with three starts on its margin, on the sets of FAR. Of the networks of STANDARD: MSP
under `WorstOf`, and the detectors of OWN under both, each attacked through its own score, on the
sets of FAR. Both sides are always attacked. The cheap comes first, for all networks, and the dear
last; `--stages` picks some. Attacks search in TF32; what they found is judged in full float32.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from rood import data
from rood._device import pick_device
from rood._files import write_whole
from rood.attacks import PGD
from rood.attacks.base import Goal
from rood.attacks.worst_of import WorstOf
from rood.data.base import ImageSet, Shape, spaced
from rood.detectors import GEN, MSP, ODIN, Energy, Entropy, Mirrored
from rood.detectors.base import Detector
from rood.errors import InputError, RoodError
from rood.evaluation.manifest import full_precision
from rood.goals import look_in, look_out, misclassify
from rood.metrics import Interval, summary, wilson
from rood.models import checkpoint
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import Linf
from rood.training import recipe as recipes
from rood.training.job import parts
from rood_papers.framework.goals import aloe_confidence

BATCH = 1000
STAGES = ("basic", "strong", "standard")
METRICS = ("auroc", "fpr95_in", "detection_error")
RESAMPLES = 200  # of a bootstrap, two thousand times: a thousand each would outlast the attacks
FAR = ("svhn", "dtd", "scenes", "near", "patches", "noise")  # no network saw any of them
STANDARD = ("cifar10-aloe-8", "cifar10-aloe", "cifar10-adv-8", "cifar10-adv")
OWN = ("mirrored_msp", "mirrored_energy", "gen", "energy", "entropy")  # each attacked by itself
ALIKE = "cifar10-ensemble-[1-4]"  # as member 0, but for the seed
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
BEYOND = 0.1  # of the detector's unit, past every image of the other side: the search is in TF32


class Library:
    """Every image set, on the device once."""

    def __init__(self, device: torch.device, limit: int | None) -> None:
        self.device, self.limit = device, limit
        self._known: dict[object, ImageSet] = {}

    def held_out(self, name: str, shape: Shape) -> ImageSet:
        """All of them."""
        recipe = recipes.get(name)
        spec = recipe.held_out
        load = lambda: parts(recipe)["test"] if spec is None else data.load(spec, shape=shape)
        return self._once((spec or recipe.data, shape, "all"), load)

    def outside(self, name: str, shape: Shape) -> dict[str, ImageSet]:
        """By their short names; the digits' recipes name none."""
        found = {}
        for spec in recipes.get(name).unseen or DIGITS:
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
    """A network with its images; all on the device."""

    name: str
    sha256: str
    model: Model
    held_out: ImageSet
    outside: Mapping[str, ImageSet]
    budgets: tuple[float, ...]  # every network is attacked at the first; its own is the last

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


def few(images: ImageSet, n: int) -> Images:
    """At most n images, evenly spaced."""
    which = torch.tensor(spaced(len(images), n), device=images.images.device)
    return replace(images, images=images.images[which], labels=None, files=()).pixels(which.device)


# --- what is found is kept ---


class Rows:
    """JSON lines, each written when it is known; what is there already is not measured again."""

    KEY = ("network", "sha256", "measure", "detector", "dataset", "attack", "eps")

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a kill may have left half a line
        if whole != text:
            path.write_text(whole)
        found = map(json.loads, whole.splitlines())
        self._known = {self._key(r): r.get("value") for r in found}

    def _key(self, row: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(row.get(k) for k in self.KEY)

    def has(self, net: Network, **row: object) -> bool:
        return self._key({"network": net.name, "sha256": net.sha256, **row}) in self._known

    def value(self, net: Network, **row: object) -> float | None:
        """What was found, where it is known."""
        return self._known.get(self._key({"network": net.name, "sha256": net.sha256, **row}))

    def write(self, net: Network, value: Interval, **row: object) -> None:
        numbers = {k: round(v, 6) for k, v in value._asdict().items()}
        self._add({"network": net.name, "sha256": net.sha256, **row, **numbers})

    def setup(self, **row: object) -> None:
        """The conditions of a run."""
        self._add({"measure": "setup", **row})

    def _add(self, row: dict[str, object]) -> None:
        self._known[self._key(row)] = row.get("value")
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


# --- attacks ---


def algorithm1(net: Network, x: Images, inside: bool, eps: float) -> Images:
    attack = PGD.aloe()
    if eps > 10 / 255:  # ten steps of 1/255 would not get there
        attack = replace(attack, step=None)
    goal = aloe_confidence(net.model, inside)
    return attack(goal, x, Linf(eps), generator(0, "algorithm 1"))


def pgd40x3(net: Network, x: Images, eps: float, goal: Goal) -> Images:
    """Three starts; an image that is past all of the other side needs no further one."""
    best = x
    for start in range(3):
        with torch.no_grad():
            value = goal(best)
        left = (value <= goal.enough).nonzero().squeeze(1)
        if not len(left):
            break
        found = PGD(steps=40)(goal, x[left], Linf(eps), generator(0, "pgd-40", start))
        with torch.no_grad():
            better = (goal(found) > value[left]).view(-1, 1, 1, 1)
        best = best.index_copy(0, left, torch.where(better, found, best[left]))
    return best


def standard(net: Network, x: Images, eps: float, goal: Goal) -> Images:
    return WorstOf()(goal, x, Linf(eps), generator(0, "standard"))


@contextmanager
def search_precision() -> Iterator[None]:
    """Convolutions in TF32, whatever they were in before."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def attacked(
    net: Network, attack: str, eps: float, x_in: Images, x_out: Images, climbed: str = "msp"
) -> tuple[Images, Images]:
    """Both sides after an attack on the score of one detector, a thousand images at a time."""
    if attack == "clean":
        return x_in, x_out
    if attack == "algorithm1":
        climb = lambda x, inside: algorithm1(net, x, inside, eps)
    else:
        detector = net.detectors[climbed]
        top, low = score(detector, x_out).max().item(), score(detector, x_in).min().item()
        out = replace(look_out(detector), enough=top + BEYOND)
        back = replace(look_in(detector, x_in), enough=-low + BEYOND)
        by = pgd40x3 if attack == "pgd40x3" else standard
        climb = lambda x, inside: by(net, x, eps, out if inside else back)
    found = []
    for side, inside in ((x_in, True), (x_out, False)):
        found.append(torch.cat([climb(x, inside) for x in side.split(BATCH)]))
        assert Linf(eps).contains(found[-1], side).all()
    return found[0], found[1]


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
    y = net.held_out.labels
    assert y is not None
    if not rows.has(net, measure="accuracy", attack="clean", eps="0"):
        hits = right(net, net.held_out.pixels(net.model.mean.device), y)
        write_share(net, rows, hits, measure="accuracy", attack="clean", eps="0")
    for eps in net.budgets:
        row = {"measure": "accuracy", "attack": "pgd10", "eps": said(eps)}
        if rows.has(net, **row):
            continue
        x, labels = few(net.held_out, n), y[spaced(len(y), n)].long()
        found = []
        for part, label in zip(x.split(BATCH), labels.to(x.device).split(BATCH), strict=True):
            goal = misclassify(net.model, label)
            found.append(PGD(steps=10)(goal, part, Linf(eps), generator(0, "pgd-10")))
        hits = right(net, torch.cat(found), labels) & right(net, x, labels)
        write_share(net, rows, hits, **row)


def write_share(net: Network, rows: Rows, hits: torch.Tensor, **row: object) -> None:
    n = len(hits)
    rows.write(net, wilson(hits.double().mean().item(), n), **row, n_in=n)


def told_apart(
    net: Network,
    rows: Rows,
    attack: str,
    eps: float,
    sets: list[str],
    n: int,
    detectors: list[str],
    climbed: str = "msp",
) -> Iterator[tuple[Scores, Scores, dict[str, object]]]:
    """Scores of both sides for each detector and set, where their rows are still missing.

    All detectors judge the same images, made against the one that is climbed.
    """
    row = {"attack": attack, "eps": said(eps)}
    wanted = [
        (d, s)
        for d in detectors
        for s in sets
        if not all(rows.has(net, measure=m, detector=d, dataset=s, **row) for m in METRICS)
    ]
    if not wanted:
        return
    x_in, x_out = few(net.held_out, n), [few(net.outside[s], n) for s in sets]
    found_in, found_out = attacked(net, attack, eps, x_in, torch.cat(x_out), climbed)
    for d in dict.fromkeys(d for d, _ in wanted):
        s_in, s_out = (score(net.detectors[d], x).cpu() for x in (found_in, found_out))
        for s, part in zip(sets, s_out.split([len(x) for x in x_out]), strict=True):
            if (d, s) in wanted:
                yield s_in, part, {"detector": d, "dataset": s, **row}


def measures(
    net: Network, stage: str, rows: Rows, args: argparse.Namespace
) -> Iterator[tuple[Scores, Scores, dict[str, object]]]:
    """All comparisons of one stage."""
    far = [s for s in FAR if s in net.outside]
    if stage == "basic":
        accuracy(net, rows, args.images)
        todo = [("clean", 0.0), *(("algorithm1", eps) for eps in net.budgets)]
        for attack, eps in todo:
            both = ["msp", "odin"]
            yield from told_apart(net, rows, attack, eps, list(net.outside), args.images, both)
        return
    attack, n = ("pgd40x3", args.strong) if stage == "strong" else ("standard", args.standard)
    judges = {"msp": ["msp", "odin"] if stage == "strong" else ["msp"]}  # ODIN sees MSP's images
    if net.name in STANDARD:
        judges |= {d: [d] for d in OWN}
    for climbed, detectors in judges.items():
        yield from told_apart(net, rows, attack, net.budgets[-1], far, n, detectors, climbed)


def record(net: Network, rows: Rows, s_in: Scores, s_out: Scores, row: dict[str, object]) -> None:
    found = summary(s_in, s_out, resamples=RESAMPLES)
    for m in METRICS:
        rows.write(net, found[m], measure=m, **row, n_in=len(s_in), n_out=len(s_out))


def said(eps: float) -> str:
    """As the threat writes it: 1/255, 0.1."""
    return str(Linf(eps)).partition(":")[2]


def chosen(patterns: list[str], folder: Path) -> list[str]:
    """Networks of the folder that have a recipe and that the patterns name, in recipes' order."""
    there = [n for n in recipes.names() if (folder / f"{n}.safetensors").exists()]
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
    """Every stage of every network; whether all went well."""
    images, good, waiting = (
        Library(pick_device(args.device), args.images),
        True,
        list[Future[None]](),
    )
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with ThreadPoolExecutor(max_workers=1) as beside:  # intervals are the CPU's, meanwhile
        for stage in args.stages:
            for name in of_stage(stage, names):
                start = time.perf_counter()
                if start > args.end:
                    print(f"{name} {stage} left for another time", flush=True)
                    continue
                try:
                    net = opened(name, args.zoo, images)
                    for s_in, s_out, row in measures(net, stage, rows, args):
                        waiting.append(beside.submit(record, net, rows, s_in, s_out, row))
                except RoodError as e:
                    print(f"{name} {stage} failed: {e}", flush=True)
                    good = False
                print(f"{name} {stage} {time.perf_counter() - start:.1f} s", flush=True)
    for done in waiting:
        done.result()  # which raises what went wrong there
    return good


def note_in_cards(path: Path, folder: Path) -> None:
    """Robust accuracy into the cards of the networks that the rows are about."""
    found: dict[str, dict[str, Any]] = {}
    for r in map(json.loads, path.read_text().splitlines()):
        if (r["measure"], r.get("attack")) == ("accuracy", "pgd10"):
            found.setdefault(r["network"], {})[r["eps"]] = r
    for name, by_eps in found.items():
        card = folder / f"{name}.json"
        facts = json.loads(card.read_text()) if card.exists() else {"sha256": ""}
        now = {e: r["value"] for e, r in by_eps.items() if facts["sha256"].startswith(r["sha256"])}
        if facts["sha256"] and now:
            facts["training"]["robust_accuracy"] = {"attack": "PGD-10 on the margin", **now}
            write_whole(card, (json.dumps(facts, indent=2) + "\n").encode())


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
    parser.add_argument("--images", type=int, default=1000, help="a side and set")
    parser.add_argument("--strong", type=int, default=250, help="of them under PGD-40 x3")
    parser.add_argument("--standard", type=int, default=200, help="of them under WorstOf")
    parser.add_argument("--stages", type=stages, default=list(STAGES), help=",".join(STAGES))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing after")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    rows, start = Rows(args.out), time.perf_counter()
    args.end = start + args.seconds
    good = run(chosen(args.names, args.zoo), rows, args)
    on_gpu = pick_device(args.device).type == "cuda"
    rows.setup(
        device=torch.cuda.get_device_name() if on_gpu else "a CPU",
        torch=torch.__version__.partition("+")[0],
        seconds=round(time.perf_counter() - start, 1),
    )
    note_in_cards(args.out, args.zoo)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
