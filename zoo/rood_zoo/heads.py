"""How robust the networks are whose scalar head was trained on the score that is attacked.

    python -m rood_zoo.heads [NAME ...] --zoo DIR --out FILE.jsonl [--device cuda]

The protocol, fixed before any image of svhn, dtd or scenes is scored:

1. CHOICE: each of SCORES is attacked by `WorstOf` at the network's own eps, both sides, on images of
   CHOOSING: held-back ID images that were not trained on, against a near OOD set. The score with the
   highest AUROC is chosen.
2. REPORT: the chosen score alone, on other images: a draw from the even places of the second half of each
   set. Clean, and attacked by `WorstOf` and by the attacks of MORE at each eps; each attack moves both sides,
   and rows say what is left with one side moved and with both.

An interrupted run continues; `make generate` shows the rows in docs/evidence/robust-head.md.
"""  # noqa: E501

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from rood.attacks import PGD, Attack, WorstOf
from rood.data.base import ImageSet
from rood.detectors import Detector, Head, Mirrored, MirroredHead
from rood.device import pick_device
from rood.evaluation.attacked import attacked_scores
from rood.metrics import summary
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import Linf
from rood_zoo.rows import Rows
from rood_zoo.table import (
    BEYOND,
    RESAMPLES,
    Library,
    Network,
    opened,
    right,
    rounded,
    said,
    score,
    write_share,
)

KEY = ("network", "sha256", "measure", "detector", "dataset", "attack", "eps", "side")
TESTS = ("svhn", "dtd", "scenes")
SCORES = ("head", "mirrored_head", "mirrored_energy")
FAR_EPS = 64 / 255  # at which every honest score falls


@dataclass(frozen=True)
class Protocol:
    """Which images choose the score of a network, and another OOD set that is reported."""

    choosing: str  # OOD set
    reported: tuple[str, ...] = TESTS


PROTOCOLS = {
    "cifar10-joint-8": Protocol("cifar-100", (*TESTS, "cifar-100")),
    "cifar10-joint": Protocol("cifar-100", (*TESTS, "cifar-100")),
    "cifar100-joint": Protocol("cifar-10", (*TESTS, "cifar-10")),
    "gtsrb-joint": Protocol("cifar-10", TESTS),
}


def choosing(images: ImageSet, n: int) -> Images:
    """Images that choose: a draw from the first half of a set."""
    return _drawn(images, range(len(images) // 2), n)


def reported(images: ImageSet, n: int) -> Images:
    """Images that are reported: a draw from the even places of the second half."""
    half = len(images) // 2
    return _drawn(images, range(half + half % 2, len(images), 2), n)


def _drawn(images: ImageSet, places: range, n: int) -> Images:
    order = torch.randperm(len(places), generator=generator(0, "heads", images.name))
    chosen = torch.tensor(places)[order[:n]]
    return images.take(chosen).pixels(images.images.device)


def detectors(net: Network) -> dict[str, Detector]:
    """The scores that can be chosen."""
    return {
        "head": Head(net.model),
        "mirrored_head": MirroredHead(net.model),
        "mirrored_energy": Mirrored.energy(net.model),
    }


def moved(
    detector: Detector, attack: Attack, eps: float, x_in: Images, x_out: Images, purpose: str
) -> tuple[Images, Images]:
    """Both sides after an attack through the detector's own score."""
    past = {
        "inside": score(detector, x_out).max().item() + BEYOND,
        "outside": score(detector, x_in).min().item() - BEYOND,
    }

    def one(x: Images, side: Literal["inside", "outside"]) -> Images:
        found = attacked_scores(
            *(detector, x, side, Linf(eps), attack),
            past=past[side],
            exemplars=x_in,
            purpose=(purpose,),
        )
        return found.images

    return one(x_in, "inside"), one(x_out, "outside")


@dataclass
class Report:
    """Measures one network; what its rows hold already is not measured again."""

    net: Network
    rows: Rows

    @property
    def of(self) -> dict[str, str]:
        return {"network": self.net.name, "sha256": self.net.sha256}

    def choice(self, n: int) -> str:
        """The score of highest AUROC, both sides attacked, on images that are not reported."""
        wanted, eps = PROTOCOLS[self.net.name], self.net.budgets[-1]
        x_in = choosing(self.net.held_out, n)
        sets = {wanted.choosing: choosing(self.net.outside[wanted.choosing], n)}
        known = detectors(self.net)
        for name in SCORES:
            self.measured("choice", name, known[name], "standard", WorstOf(), eps, x_in, sets)
        at = {"dataset": wanted.choosing, "attack": "standard", "eps": said(eps), "side": "both"}
        value = lambda name: self.rows.value(**self.of, measure="choice", detector=name, **at) or 0
        return max(SCORES, key=value)

    def report(self, name: str, n: int, few: int) -> None:
        """The numbers of the chosen score."""
        detector = detectors(self.net)[name]
        x_in = reported(self.net.held_out, n)
        some = {s: reported(self.net.outside[s], n) for s in PROTOCOLS[self.net.name].reported}
        tried = partial(self.measured, "report", name, detector)
        for eps in self.net.budgets[::-1]:
            tried("standard", WorstOf(), eps, x_in, some)
        eps = self.net.budgets[-1]
        tried("pgd100", PGD(steps=100), FAR_EPS, x_in, some)
        first = {s: x[:few] for s, x in some.items() if s in TESTS}
        strong = PGD(steps=1000, restarts=5)
        tried("pgd1000x5", strong, eps, x_in[:few], first)
        tried("standard on the same", WorstOf(), eps, x_in[:few], first)

    def transfer(self, name: str, other: Network, n: int) -> None:
        """Images found on another network's energy, judged by the chosen score."""
        eps = self.net.budgets[-1]
        x_in = reported(self.net.held_out, n)
        some = {s: reported(self.net.outside[s], n) for s in TESTS}
        surrogate = Mirrored.energy(other.model)
        judge = detectors(self.net)[name]
        self.measured(
            *("report", name, judge, f"transfer from {other.name}", PGD(steps=100), eps),
            *(x_in, some, surrogate),
        )

    def accuracy(self) -> None:
        """The share of all held-out images that are classified correctly."""
        y, row = self.net.held_out.labels, {**self.of, "measure": "accuracy", "attack": "clean"}
        assert y is not None
        if not self.rows.has(**row):
            hits = right(self.net, self.net.held_out.pixels(self.net.model.mean.device), y)
            write_share(self.rows, hits, **row)

    def measured(
        self,
        measure: str,
        name: str,
        judge: Detector,
        label: str,
        attack: Attack,
        eps: float,
        x_in: Images,
        sets: Mapping[str, Images],
        climbed: Detector | None = None,
    ) -> None:
        """Rows of one attack on all sets: clean, each side attacked alone, and both."""
        row = {**self.of, "measure": measure, "detector": name, "attack": label, "eps": said(eps)}
        if all(self.rows.has(**row, dataset=s, side="both") for s in sets):
            return
        x_out = torch.cat([*sets.values()])
        found = moved(climbed or judge, attack, eps, x_in, x_out, label)
        clean_in, clean_out, bad_in, bad_out = (
            score(judge, x).cpu() for x in (x_in, x_out, *found)
        )
        sizes = [len(x) for x in sets.values()]
        for s, clean, bad in zip(sets, clean_out.split(sizes), bad_out.split(sizes), strict=True):
            sides: dict[str, tuple[Scores, Scores]] = {
                "clean": (clean_in, clean),
                "in": (bad_in, clean),
                "out": (clean_in, bad),
                "both": (bad_in, bad),
            }
            for side, (inside, outside) in sides.items():
                value = summary(inside, outside, resamples=RESAMPLES)["auroc"]
                n = {"n_in": len(inside), "n_out": len(outside)}
                self.rows.write(**row, dataset=s, side=side, **rounded(value), **n)
                if side in ("clean", "both"):
                    print(
                        f"{self.net.name} {name} {label} {said(eps)} {s} {side} {value.value:.4f}"
                    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(PROTOCOLS))
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=250, help="images per set")
    parser.add_argument("--few", type=int, default=40, help="images per set under PGD-1000 x5")
    parser.add_argument("--transfer", help="another network, whose attacked images are tried")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    images, rows = Library(pick_device(args.device), None), Rows(args.out, KEY)
    for name in args.names:
        report = Report(opened(name, args.zoo, images), rows)
        report.accuracy()
        chosen = report.choice(args.images)
        print(f"{name}: {chosen} decides", flush=True)
        report.report(chosen, args.images, args.few)
        if args.transfer:
            report.transfer(chosen, opened(args.transfer, args.zoo, images), args.images)
    return 0


if __name__ == "__main__":
    sys.exit(main())
