"""Claim: PGD costs at most 1.05 of torchattacks' and 1.0 of foolbox's, and its loss is no lower.

`make peers` runs it where `ROOD_DATA` names a folder with cifar10_test.npz and, in weights/, a
trained ResNet-20. All attack the same images of the same network with the same eps, steps and step.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.bare import Normalise
from benchmarks.measure import conditions
from rood import data
from rood.attacks import PGD, Goal
from rood.goals import misclassify
from rood.models.backbones import CifarResNet
from rood.models.checkpoint import load_state
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf
from tools import attack_peers
from tools.markdown import read

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EPS = 8 / 255
STEPS = (10, 40)
RUNS = 7
TIMED, SCORED = 16, 48  # images
BARS = {"torchattacks": 1.05, "foolbox": 1.0}

# What the bars are for: our defaults, 40 steps of the margin, as they are called; and with their
# goal, and as they do without the pass that sees to it that nothing gets worse than x, both lengths
AS_CALLED = "as called: margin, best iterate"
LIKE_THEIRS = "cross-entropy, best iterate, compare=False"
JUDGED = ((10, LIKE_THEIRS), (40, LIKE_THEIRS), (40, AS_CALLED))

Call = Callable[[int], Tensor]  # a seed to attacked images


class Caller(NamedTuple):
    """One way to ask for the attack."""

    library: str
    what: str
    call: Call
    from_x: Call  # the same without a random start, so that all begin at the same point


class Scene(NamedTuple):
    """What is attacked."""

    net: nn.Sequential  # pixels to logits, without rood's hooks
    x: Tensor
    y: Tensor


def scene(folder: Path, images: int) -> Scene:
    state = load_state(folder / "weights" / "akamaster_resnet20_cifar10.pt")
    trained = CifarResNet.from_state(state, depth=20).eval().requires_grad_(False)
    normal = Normalise(*(torch.tensor(v).view(1, -1, 1, 1) for v in (MEAN, STD)))
    net = nn.Sequential(normal, trained)
    inside = data.load(f"npz:{folder / 'cifar10_test'}.npz", limit=images)
    x, y = next(iter(inside.batches(images)))
    return Scene(net, x, y)


def ours(s: Scene, steps: int) -> list[Caller]:
    model, threat = wrap(s.net[1], mean=MEAN, std=STD), Linf(EPS)
    margin = misclassify(model, s.y)
    loss = Goal(lambda x: cross_entropy(model(x).logits, s.y, reduction="none"))

    def caller(what: str, goal: Goal, **options: Any) -> Caller:
        def call(random_start: bool) -> Call:
            step = 2.5 * EPS / steps
            attack = PGD(steps=steps, step=step, random_start=random_start, **options)
            return lambda seed: attack(goal, s.x, threat, generator(seed, "peers"))

        return Caller("rood", what, call(True), call(False))

    return [
        caller(AS_CALLED, margin),
        caller("cross-entropy, best iterate", loss),
        caller(LIKE_THEIRS, loss, compare=False),
        caller("margin, last iterate, compare=False", margin, compare=False, keep="last"),
    ]


def theirs(s: Scene, steps: int) -> list[Caller]:
    import foolbox
    import torchattacks

    step = 2.5 * EPS / steps
    model = foolbox.PyTorchModel(s.net, bounds=(0, 1), device="cpu")

    def one(random_start: bool) -> Call:
        attack = torchattacks.PGD(s.net, EPS, step, steps, random_start)
        return seeded(lambda: attack(s.x, s.y))

    def other(random_start: bool) -> Call:
        attack = foolbox.attacks.LinfPGD(abs_stepsize=step, steps=steps, random_start=random_start)
        return seeded(lambda: attack(model, s.x, s.y, epsilons=EPS)[1])

    return [
        Caller("torchattacks", "PGD", one(True), one(False)),
        Caller("foolbox", "LinfPGD", other(True), other(False)),
    ]


def seeded(call: Callable[[], Tensor]) -> Call:
    """They draw from the global generator."""

    def attack(seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return call()

    return attack


class Timed(NamedTuple):
    wall: float
    cpu: float  # the process's own time
    loss: float  # mean cross-entropy of what came back, by the bare network
    flipped: float


def timed(s: Scene, call: Call, seed: int) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    found = call(seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if not Linf(EPS).contains(found, s.x).all():
        raise SystemExit("expected every attacked image in the ball")
    with torch.no_grad():
        z = s.net(found)
    return Timed(
        wall, cpu, cross_entropy(z, s.y).item(), (z.argmax(dim=1) != s.y).double().mean().item()
    )


def measure(s: Scene, steps: int) -> list[dict[str, Any]]:
    callers = [*ours(s, steps), *theirs(s, steps)]
    for c in callers:
        c.call(0)
    found: list[list[Timed]] = [[] for _ in callers]
    for seed in range(1, RUNS + 1):
        turn = [(i + seed) % len(callers) for i in range(len(callers))]  # nobody is always first
        for i in turn:
            found[i].append(timed(s, callers[i].call, seed))
    by_library = {c.library: f for c, f in zip(callers, found, strict=True)}
    peers = {name: by_library[name] for name in BARS}
    return [numbers(f, peers) for f in found]


def from_x(s: Scene, steps: int) -> list[dict[str, Any]]:
    """Loss where all begin at the same point, and its lead over theirs, image by image."""
    callers = [*ours(s, steps), *theirs(s, steps)]
    found = [c.from_x(0) for c in callers]  # theirs fail where gradients are switched off
    with torch.no_grad():
        loss = [cross_entropy(s.net(x), s.y, reduction="none").double() for x in found]
    peers = {c.library: v for c, v in zip(callers, loss, strict=True) if c.library in BARS}
    rows = []
    for c, own in zip(callers, loss, strict=True):
        leads = {name: own - v for name, v in peers.items()}
        rows.append(
            {"steps": steps, "library": c.library, "what": c.what}
            | {"loss_from_x": round(own.mean().item(), 4)}
            | {"lead": {n: round(v.mean().item(), 4) for n, v in leads.items()}}
            | {
                "lead_error": {
                    n: round((v.std() / len(v) ** 0.5).item(), 4) for n, v in leads.items()
                }
            }
        )
    return rows


def numbers(found: Sequence[Timed], peers: Mapping[str, Sequence[Timed]]) -> dict[str, Any]:
    pairs = {name: list(zip(found, other, strict=True)) for name, other in peers.items()}
    wall = {name: [a.wall / b.wall for a, b in p] for name, p in pairs.items()}
    cpu = {name: [a.cpu / b.cpu for a, b in p] for name, p in pairs.items()}
    losses = [f.loss for f in found]
    return {
        "loss": round(statistics.fmean(losses), 4),
        "loss_error": round(statistics.stdev(losses) / len(losses) ** 0.5, 4),
        "flipped": round(statistics.fmean(f.flipped for f in found), 4),
        "seconds": round(statistics.median(f.wall for f in found), 4),
        "wall": {n: round(statistics.median(r), 4) for n, r in wall.items()},
        "spread": {n: round(max(r) - min(r), 4) for n, r in wall.items()},
        "cpu": {n: round(statistics.median(r), 4) for n, r in cpu.items()},
    }


def short(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where a call that is judged misses a bar, a sentence each."""
    wrong = []
    for mine in (r for r in rows if (r["steps"], r["what"]) in JUDGED):
        call = f"PGD-{mine['steps']}, {mine['what']}"
        for name, bar in BARS.items():
            ratio, lead, error = (mine[k][name] for k in ("wall", "lead", "lead_error"))
            if ratio > bar:
                wrong.append(f"{call}: {ratio} of {name}'s time, expected at most {bar}")
            if lead < 0:
                wrong.append(f"{call}: loss {lead} ± {error} from {name}'s, expected no less")
    return wrong


def about() -> dict[str, Any]:
    return {
        "network": "ResNet-20, CIFAR-10",
        "images": TIMED,
        "images_from_x": SCORED,
        "eps": EPS,
        "runs": RUNS,
        "bars": BARS,
        "judged": JUDGED,
        **{name: version(name) for name in BARS},
        **conditions(),
    }


def main() -> int:
    if not (folder := os.environ.get("ROOD_DATA")):
        print("attacks not compared: ROOD_DATA names no folder with the network and the images")
        return 0
    few, many = (scene(Path(folder), n) for n in (TIMED, SCORED))
    rows = []
    for n in STEPS:
        rows += [a | b for a, b in zip(from_x(many, n), measure(few, n), strict=True)]
    lines = [json.dumps(r) for r in ({"run": about()}, *rows)]
    attack_peers.ROWS.write_text("\n".join(lines) + "\n")
    print(attack_peers.peer_table(read(attack_peers.ROWS)))
    wrong = short(rows)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
