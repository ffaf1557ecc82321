"""Soundness of certificates: nothing that is found leaves the bounds.

    python -m benchmarks.soundness [NAME ...] [--points 1000000] [--out FILE ...]

NAME: networks of the zoo, or "known"; none: everything. Parts may run at the same time, each with
an --out of its own; `--join FILE ...` then adds their rows to docs/results.

Every network: CROWN where it has at most ten layers with weights, interval bounds on the
others; random points, corners, PGD up and down from each image, and on five networks the tier
`standard`. Then what has a known answer: linear networks, tiny networks whose exact range comes
from all patterns of active units, and faults planted into the relaxations. `make generate` makes
docs/evidence/certificates.md of the rows. A second run measures what is missing.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import rood
from benchmarks.measure import RESULTS, ROOT, conditions
from rood import data
from rood.attacks import PGD
from rood.attacks.worst_of import WorstOf
from rood.certify import METHODS, Certifier, Method, bounds
from rood.detectors import MSP, Head
from rood.detectors.base import Detector
from rood.errors import CapabilityError
from rood.goals import look_in, look_out
from rood.models.model import Model
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import L2, Linf, Threat
from rood_zoo.rows import Rows

HELPERS = ROOT / "tests" / "helpers"
KEY = ("name", "threat")
KNOWN = "known"
LAYERS = 10  # at most so many, for CROWN
CORE = ("digits-ce", "digits-aloe", "digits-certified", "digits-calibrated", "digits-jem")
OTHERS = 400  # points on each network that is not small
IMAGES, ATTACKED = 4, 2  # around which to search, of each side; for `standard`
AT_ONCE = 250


def threats(card: dict[str, object]) -> tuple[Threat, ...]:
    """Two budgets: those at which such networks are attacked."""
    shape = card["shape"]
    assert isinstance(shape, list)
    return (Linf(0.02), Linf(0.1)) if shape[0] == 1 else (Linf(1 / 255), Linf(8 / 255))


def layers(model: Model) -> int:
    """Layers with weights on the longest path: all of them, but shortcuts."""
    found = [n for n, m in model.net.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    return sum("shortcut" not in n for n in found)


def near(card: dict[str, object]) -> Images:
    """Images of both sides, in the shape of a network; textures where the data is not here."""
    shape = card["shape"]
    assert isinstance(shape, list)
    size = (shape[0], shape[1], shape[2])
    if size == (1, 28, 28):
        sets = digits()
    else:
        sets = [
            data.load(f"procedural:{kind},n={IMAGES}", shape=size)
            for kind in ("dead_leaves", "colour_noise")
        ]
    return torch.cat([s.pixels() for s in sets])


def digits() -> list[data.ImageSet]:
    """Digits of both sides; of the pack where the package of the others is not here."""
    try:
        return [data.load(f"digits:{side}", limit=IMAGES) for side in ("inside", "near")]
    except CapabilityError:
        return [data.load("npz:$ROOD_DATA/mnist_test.npz", limit=2 * IMAGES)]


def drawn(x: Images, threat: Threat, seed: int) -> Images:
    """A point around each image: inside the ball, or a corner of it."""
    noise = 2 * torch.rand(x.shape, generator=generator(seed, "soundness")) - 1
    noise = noise.sign() if seed % 2 else noise
    return threat.project(x + threat.eps * noise, x)


class Search:
    """The extreme scores that were found around some images, beside their bounds."""

    def __init__(self, detector: Detector, x: Images, threat: Threat, method: Method) -> None:
        self.detector, self.x, self.threat = detector, x, threat
        self.low, self.high = Certifier(detector, threat, method)(x)
        self.least = self.most = detector.score(x).double()
        self.points = 0

    def see(self, points: Images) -> None:
        """Note the scores of one point around each image."""
        with torch.no_grad():
            s = self.detector.score(points).double()
        self.points += len(points)
        self.least, self.most = torch.minimum(self.least, s), torch.maximum(self.most, s)

    def at_random(self, n: int) -> None:
        """n points in all."""
        rounds = -(-n // len(self.x))
        for first in range(0, rounds, AT_ONCE):
            many = range(first, min(rounds, first + AT_ONCE))
            points = torch.cat([drawn(self.x, self.threat, seed) for seed in many])
            with torch.no_grad():
                s = self.detector.score(points).double().view(len(many), -1)
            self.points += len(points)
            self.least = torch.minimum(self.least, s.amin(dim=0))
            self.most = torch.maximum(self.most, s.amax(dim=0))

    def attacked(self, attack: PGD | WorstOf, images: int | None = None) -> None:
        """What an attack finds in either direction, around the first images."""
        x = self.x if images is None else self.x[:images]
        for goal in (look_in(self.detector), look_out(self.detector)):
            found = attack(goal, x, self.threat, generator(0, "soundness attack"))
            self.see(torch.cat([found, self.x[len(x) :]]))

    def row(self) -> dict[str, object]:
        """How far a score lies outside, 0 where none does; and how much of the bounds is used."""
        outside = torch.maximum(self.low - self.least, self.most - self.high).max().item()
        finite = (self.high - self.low).isfinite()
        used = ((self.most - self.least) / (self.high - self.low))[finite]
        return {
            "points": self.points,
            "outside": max(0.0, outside),
            "used": None if len(used) == 0 else round(used.mean().item(), 4),
        }


def network(name: str, threat: Threat, points: int) -> dict[str, object]:
    """The row of one network of the zoo and a budget; where it is not covered, it says why."""
    model, card = rood.zoo.load(name), rood.zoo.card(name)
    detector: Detector = MSP(model) if model.scalar_head is None else Head(model)
    depth = layers(model)
    method: Method = "crown" if depth <= LAYERS else "ibp"
    key = {"name": name, "threat": str(threat)}
    start = time.perf_counter()
    try:
        search = Search(detector, near(card), threat, method)
    except CapabilityError as e:
        return {**key, "refused": str(e)}
    search.at_random(points)
    search.attacked(PGD(steps=20))
    tier = {}
    if name in CORE:
        search.attacked(WorstOf(tier="standard"), ATTACKED)
        tier = {"standard": ATTACKED}
    took = round(time.perf_counter() - start, 1)
    return {**key, "method": method, "layers": depth, **search.row(), **tier, "seconds": took}


def linear(method: Method) -> float:
    """How far bounds of a linear score are from their formula, over 20 images and two norms."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double()
    model = scored(wrap(net, mean=(0.4, 0.5), std=(0.3, 0.25)))
    x = 0.3 + 0.4 * torch.rand(20, 2, 6, 6, generator=generator(0, "linear")).double()
    assert model.scalar_head is not None
    weight = model.scalar_head.weight[0] / model.std.expand(1, 2, 6, 6).flatten()
    worst, head = 0.0, Head(model)
    for threat, order in ((Linf(0.03), 1), (L2(0.2), 2)):
        low, high = bounds(head, x, threat, method)
        s, reach = head.score(x), threat.eps * weight.norm(p=order)
        worst = max(worst, *(float(v.abs().max()) for v in (low - s + reach, high - s - reach)))
    return worst


def known(rows: Rows) -> Iterator[dict[str, object]]:
    """Rows of what has a known answer and is not measured yet."""
    sys.path.insert(0, str(HELPERS))
    import enumeration
    import pytest  # for this part alone
    import unsound

    for method in METHODS:
        if rows.has(name=f"linear {method}"):
            continue
        yield {
            "name": f"linear {method}",
            "check": "linear",
            "method": method,
            "off": linear(method),
        }
    for method in METHODS:
        if rows.has(name=f"patterns {method}"):
            continue
        found = [enumeration.gap(seed, method) for seed in range(enumeration.SEEDS)]
        yield {
            "name": f"patterns {method}",
            "check": "patterns",
            "method": method,
            "networks": len(found),
            "outside": max(outside for outside, _ in found),
            "widest": round(max(width for _, width in found), 4),
            "mean": round(sum(width for _, width in found) / len(found), 4),
        }
    if rows.has(name="faults"):
        return
    caught = 0
    for plant, search in unsound.FAULTS:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            caught += unsound.found(search) > 1e-9
    yield {"name": "faults", "check": "faults", "planted": len(unsound.FAULTS), "caught": caught}


def join(parts: list[Path], out: Path, key: tuple[str, ...] = KEY) -> None:
    """Add rows that were measured elsewhere, each where it is not there yet."""
    rows = Rows(out, key)
    for part in parts:
        whole = part.read_text().rpartition("\n")[0]  # a kill may have left half a line
        for row in map(json.loads, whole.splitlines()):
            if not rows.has(**row):
                rows.write(**row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help='networks, or "known"; none: everything')
    parser.add_argument("--points", type=int, default=1_000_000, help="in all")
    parser.add_argument("--out", type=Path, default=RESULTS / "certify-soundness.jsonl")
    parser.add_argument("--join", type=Path, nargs="+", help="rows that were measured in parts")
    args = parser.parse_args()
    if args.join:
        join(args.join, args.out)
        return
    rows = Rows(args.out, KEY, **conditions())
    names = args.names or [*rood.zoo.names(), KNOWN]
    many = args.points // len(CORE) + 1
    for name in sorted(set(names) - {KNOWN}, key=lambda n: n not in CORE):
        budgets = threats(rood.zoo.card(name))
        for threat in budgets:
            if rows.has(name=name, threat=str(threat)):
                continue
            row = network(name, threat, (many if name in CORE else OTHERS) // len(budgets))
            print(row, flush=True)
            rows.write(**row)
    for row in known(rows) if KNOWN in names else ():
        print(row, flush=True)
        rows.write(**row)


if __name__ == "__main__":
    main()
