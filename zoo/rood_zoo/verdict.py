"""What hardened networks keep, with a score chosen before the test and on images not seen before.

    python -m rood_zoo.verdict [NAME ...] --zoo DIR --out FILE.jsonl [--device cuda]

First the CANDIDATES, each attacked through itself by `WorstOf`, tell CIFAR-10 test images from
CIFAR-100 test images; the one that keeps most decides for that network. Then it, and MSP, are
measured on svhn, dtd and scenes under every attack of ATTACKS. No score of `rood_zoo.table`
is of one of these images, nor was the choice made on them. Cut off, it goes on where it stopped;
`make docs` makes the verdict of docs/zoo.md of docs/results/zoo-verdict.jsonl.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from rood._device import pick_device
from rood.data.base import ImageSet, spaced
from rood.metrics import summary
from rood.seeds import generator
from rood.shapes import Images
from rood_zoo.table import Library, Network, Rows, attacked, opened, said, score

NETWORKS = ("cifar10-aloe", "cifar10-aloe-8")
CANDIDATES = ("msp", "energy", "mirrored_msp", "mirrored_energy")
TESTS = ("svhn", "dtd", "scenes")
ATTACKS = ("pgd40x3", "standard")  # the stronger one last; Algorithm 1 sees the softmax alone
SHOWN = 1000  # of each set to `rood_zoo.table`


def unseen(images: ImageSet, parts: int, n: int) -> list[Images]:
    """Lots of at most n images each, of those that `rood_zoo.table` did not take."""
    taken = set(spaced(len(images), SHOWN))
    rest = torch.tensor([i for i in range(len(images)) if i not in taken])
    order = rest[torch.randperm(len(rest), generator=generator(0, "verdict"))]
    lots = (order[k * n : (k + 1) * n] for k in range(parts))
    return [images.take(lot).pixels(images.images.device) for lot in lots]


def choose(net: Network, rows: Rows, x_in: Images, x_out: Images) -> str:
    """The candidate that keeps most of the validation images apart."""
    kept = {}
    for name in CANDIDATES:
        row = {"measure": "validation", "detector": name, "dataset": "cifar-100"}
        kept[name] = measure(net, rows, {"cifar-100": x_out}, x_in, "standard", name, row)
    return max(kept, key=lambda name: kept[name])


def measure(
    net: Network,
    rows: Rows,
    sets: Mapping[str, Images],
    x_in: Images,
    attack: str,
    name: str,
    row: dict[str, object],
) -> float:
    """The mean AUROC over the sets, a row for each; both sides attacked through the score."""
    eps = net.budgets[-1]
    said_of = lambda s: row | {"dataset": s, "attack": attack, "eps": said(eps)}
    known = [rows.value(net, **said_of(s)) for s in sets]
    if None not in known:
        return sum(known) / len(known)  # type: ignore[arg-type]
    found_in, found_out = attacked(net, attack, eps, x_in, torch.cat([*sets.values()]), name)
    s_in, s_out = (score(net.detectors[name], x).cpu() for x in (found_in, found_out))
    values = []
    for s, part in zip(sets, s_out.split([len(x) for x in sets.values()]), strict=True):
        value = summary(s_in, part)["auroc"]
        if not rows.has(net, **said_of(s)):  # a kill may have left some sets of an attack
            rows.write(net, value, **said_of(s), n_in=len(s_in), n_out=len(part))
        values.append(value.value)
    return sum(values) / len(values)


def judge(net: Network, rows: Rows, n: int) -> None:
    """Choose a score, then measure it and MSP."""
    validation, x_in = unseen(net.held_out, 2, n)
    chosen = choose(net, rows, validation, unseen(net.outside["cifar-100"], 1, n)[0])
    print(f"{net.name}: {chosen} decides", flush=True)
    sets = {s: unseen(net.outside[s], 1, n)[0] for s in TESTS}
    for name in dict.fromkeys((chosen, "msp")):
        for attack in ATTACKS if name != "msp" else ("algorithm1", *ATTACKS):
            row = {"measure": "verdict", "detector": name}
            value = measure(net, rows, sets, x_in, attack, name, row)
            print(f"{net.name} {name} {attack} {value:.4f}", flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=250, help="a side and set")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    whole = Library(pick_device(args.device), None)
    rows = Rows(args.out)
    for name in args.names:
        judge(opened(name, args.zoo, whole), rows, args.images)
    return 0


if __name__ == "__main__":
    sys.exit(main())
