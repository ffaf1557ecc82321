"""LIANG's attack on the systems that need training of their own, and the direct attack beside it.

    python -m benchmarks.liang_trained jem calibrated ensemble ccu --out DIR [--networks DIR]

Networks are those of the zoo, or name.safetensors in --networks; where there is none for MNIST or
CIFAR-10, that for the shipped digits. Images are the packs where ROOD_DATA says. A JSON line for
each start: AUROC before, after the match, after the direct attack (`worst_of` on each score itself,
from the same starts in the same ball), MAPE, the loss in time, and the paper's number where it has
one. For `ccu` also how far attacks get on real OOD images, and how far its certificate lets any
attack get.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch

from rood import data, zoo
from rood.attacks import FeatureMatch, WorstOf
from rood.attacks.worst_of import Tier
from rood.data.base import ImageSet
from rood.detectors import CCU, JEM, MSP, DeepEnsemble
from rood.detectors.base import Detector
from rood.errors import UnknownNameError
from rood.goals import look_in
from rood.matching import (
    BATCH,
    Encoder,
    attack_pairs,
    ensemble_logits,
    features,
    layers,
    logits,
    noise_starts,
    score_of,
    spiral_starts,
)
from rood.metrics import auroc
from rood.models import checkpoint
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import L2
from rood.training.recipes import SHARES

STARTS = {"noise": noise_starts, "spiral": spiral_starts}
MNIST, CIFAR = "npz:$ROOD_DATA/mnist_test.npz", "npz:$ROOD_DATA/cifar10_test.npz"
DIGITS = "digits:inside"  # those of them that the networks were not trained on
FASHION, SVHN = "npz:$ROOD_DATA/fashion_mnist_test.npz", "npz:$ROOD_DATA/svhn_test5k.npz"
FAR = {MNIST: FASHION, DIGITS: FASHION, CIFAR: SVHN}
EPS = {MNIST: 5.0, DIGITS: 5.0, CIFAR: 10.0}  # the paper's 10 is for 3,072 numbers an image
CERTIFIED = (0.25, 0.5, 1.0, 2.0, 4.0)  # L2 radii of the attacks on real OOD images


@dataclass
class System:
    """What is attacked, through which code, and what the paper has."""

    images: str
    detectors: dict[str, Detector]
    encoders: dict[str, Encoder]
    paper: dict[str, float] = field(default_factory=dict)
    start: str = "noise"  # of the paper's number


Load = Callable[[str], Model]


def first(load: Load, *choices: tuple[str, str]) -> tuple[Model, str]:
    """The first network that there is, and the images it knows."""
    for name, images in choices[:-1]:
        try:
            return load(name), images
        except UnknownNameError:
            continue
    name, images = choices[-1]
    return load(name), images


def jem(load: Load) -> System:
    model, images = first(load, ("mnist-jem", MNIST), ("digits-jem", DIGITS))
    kinds = {"jem": JEM.density, "jem_softmax": JEM.softmax, "jem_gradient": JEM.mass}
    return System(
        images,
        {name: make(model) for name, make in kinds.items()},
        {"logits": logits(model)},
        {"jem": 0.559, "jem_softmax": 0.513, "jem_gradient": 0.203},
        "spiral",
    )


def calibrated(load: Load) -> System:
    model, images = first(load, ("cifar10-calibrated", CIFAR), ("digits-calibrated", DIGITS))
    flat = {"input of the hidden layers": layers(model, ["flat"])} if images == CIFAR else {}
    code = flat or {"features": features(model)}
    return System(images, {"msp": MSP(model)}, code, {"msp": 0.576})


def ensemble(load: Load) -> System:
    members = [load(f"cifar10-ensemble-{i}") for i in range(5)]
    code = {"logits of all members": ensemble_logits(members)}
    detectors: dict[str, Detector] = {"deep_ensemble": DeepEnsemble(members)}
    return System(CIFAR, detectors, code, {"deep_ensemble": 0.5})


def ccu(load: Load) -> System:
    model, images = first(load, ("mnist-ccu", MNIST), ("digits-ccu", DIGITS))
    detector = CCU(model).fit([])  # its mixtures are in the network
    codes = {"logits": logits(model), "score": score_of(detector)}
    return System(images, {"ccu": detector, "msp": MSP(model)}, codes)


SYSTEMS = {"jem": jem, "calibrated": calibrated, "ensemble": ensemble, "ccu": ccu}


def unseen(images: str) -> ImageSet:
    """Images that no network was trained on."""
    found = data.load(images)
    return data.split(found, "", **SHARES)["test"] if images == DIGITS else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="+", choices=sorted(SYSTEMS))
    parser.add_argument("--networks", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tier", default="standard", choices=get_args(Tier))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    def load(name: str) -> Model:
        path = args.networks and args.networks / f"{name}.safetensors"
        found = checkpoint.load(path) if path and path.exists() else zoo.load(name)
        return found.to(args.device)

    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.systems:
        system = SYSTEMS[name](load)
        inside = unseen(system.images).thin(args.n).pixels(args.device)
        with (args.out / f"matched-{name}.jsonl").open("w") as file:
            for row in rows(system, inside, FeatureMatch(steps=args.steps), args.tier):
                row = {"system": name, "images": Path(system.images).stem} | row
                print(name, {k: v for k, v in row.items() if not isinstance(v, list)}, flush=True)
                file.write(json.dumps(row) + "\n")
                file.flush()


def rows(
    system: System, inside: Images, match: FeatureMatch, tier: Tier
) -> Iterator[dict[str, Any]]:
    threat, direct = L2(EPS[system.images]), WorstOf(tier=tier)
    for start, make in STARTS.items():
        begin = make(inside)
        clean = {d: against(s, inside, begin) for d, s in system.detectors.items()}
        attacked = {
            d: against(s, inside, lowered(s, begin, inside, threat, direct))
            for d, s in system.detectors.items()
        }
        for code, encoder in system.encoders.items():
            began = time.perf_counter()
            found = attack_pairs(encoder, inside, begin, match, threat)
            yield {
                "start": start, "eps": threat.eps, "matched": code, "clean": clean,
                "auroc": {d: found.auroc(s.score) for d, s in system.detectors.items()},
                "direct": attacked, "tier": tier,
                "paper": system.paper if start == system.start else {},
                "seconds": round(time.perf_counter() - began, 1), **found.to_dict(),
            }  # fmt: skip
    for detector in system.detectors.values():
        if isinstance(detector, CCU):
            yield from certified(detector, system.images, inside, direct)


def certified(
    detector: CCU, images: str, inside: Images, attack: WorstOf
) -> Iterator[dict[str, Any]]:
    """Real OOD images and noise: AUROC clean <= attacked >= certified, and points beyond it."""
    c, h, w = inside.shape[1:]
    far = data.load(FAR[images], shape=(c, h, w)).thin(len(inside)).pixels(inside.device)
    for name, outside in (("real", far), ("noise", noise_starts(inside))):
        for eps in CERTIFIED:
            found = lowered(detector, outside, inside, L2(eps), attack)
            with torch.no_grad():
                least = detector.least_score(outside, detector.radius(L2(eps)))
                got, own = detector.score(found).double(), detector.score(inside)
            yield {
                "outside": name, "eps": eps, "n": len(outside),
                "clean": against(detector, inside, outside),
                "attacked": auroc(inside=own, outside=got),
                "certified": auroc(inside=own.double(), outside=least),
                "beyond": int((got < least - 1e-3 * (1 + least.abs())).sum()),
                "confidence_attacked": detector.confidence(got).mean().item(),
                "confidence_certified": detector.confidence(least).mean().item(),
            }  # fmt: skip


def lowered(
    detector: Detector, x: Images, exemplars: Images, threat: L2, attack: WorstOf
) -> Images:
    """The lowest scores that the direct attack finds."""
    goal = look_in(detector, exemplars)
    source = lambda: generator(0, "direct")
    return torch.cat([attack(goal, part, threat, source()) for part in x.split(BATCH)])


@torch.no_grad()
def against(detector: Detector, inside: Images, outside: Images) -> float:
    return auroc(inside=detector.score(inside), outside=detector.score(outside))


if __name__ == "__main__":
    main()
