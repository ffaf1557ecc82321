"""The AUROC of hardened networks with a score that was chosen beforehand, on fresh images.

    python -m rood_zoo.verdict [NAME ...] --zoo DIR --out FILE.jsonl [--device cuda]

First the CANDIDATES, each attacked through its own score by `WorstOf`, tell CIFAR-10 from CIFAR-100
test images, and the one with the highest AUROC is chosen for that network. Then it and MSP are
measured on svhn, dtd and scenes under every attack of ATTACKS. These images are not among those of
`rood_zoo.table`, and the choice was not made on them. An interrupted run continues; `make generate`
shows docs/results/zoo-verdict.jsonl in docs/evidence/zoo.md.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from rood.data.base import ImageSet, spaced
from rood.device import pick_device
from rood.seeds import generator
from rood.shapes import Images
from rood_zoo.rows import Rows
from rood_zoo.table import KEY, Comparison, Library, Network, compare, opened, said

NETWORKS = ("cifar10-aloe", "cifar10-aloe-8")
CANDIDATES = ("msp", "energy", "mirrored_msp", "mirrored_energy")
TESTS = ("svhn", "dtd", "scenes")
ATTACKS = ("pgd40x3", "standard")  # the stronger one last; Algorithm 1 sees the softmax alone
SHOWN = 1000  # of each set to `rood_zoo.table`


def unseen(images: ImageSet, parts: int, n: int) -> list[Images]:
    """Disjoint parts of at most n images each, without those that `rood_zoo.table` takes."""
    taken = set(spaced(len(images), SHOWN))
    rest = torch.tensor([i for i in range(len(images)) if i not in taken])
    order = rest[torch.randperm(len(rest), generator=generator(0, "verdict"))]
    lots = (order[k * n : (k + 1) * n] for k in range(parts))
    return [images.take(lot).pixels(images.images.device) for lot in lots]


def choose(net: Network, rows: Rows, x_in: Images, x_out: Images) -> str:
    """The candidate with the highest AUROC on the validation images."""
    auroc = {
        name: mean_auroc(net, rows, "validation", name, "standard", x_in, {"cifar-100": x_out})
        for name in CANDIDATES
    }
    return max(auroc, key=lambda name: auroc[name])


def mean_auroc(
    net: Network,
    rows: Rows,
    measure: str,
    detector: str,
    attack: str,
    x_in: Images,
    sets: Mapping[str, Images],
) -> float:
    """The mean AUROC over the sets, a row for each; both sides attacked through the score."""
    eps = net.budgets[-1]
    names = {"auroc": measure}
    wanted = Comparison(
        attack=attack, eps=eps, climbed=detector, judges=(detector,), measures=names
    )
    compare(net, rows, wanted, x_in, sets)
    of = {"network": net.name, "sha256": net.sha256, "measure": measure, "detector": detector}
    values = [rows.value(**of, dataset=s, attack=attack, eps=said(eps)) for s in sets]
    return sum(v for v in values if v is not None) / len(values)


def judge(net: Network, rows: Rows, n: int) -> None:
    """Choose a score, then measure it and MSP."""
    validation, x_in = unseen(net.held_out, 2, n)
    chosen = choose(net, rows, validation, unseen(net.outside["cifar-100"], 1, n)[0])
    print(f"{net.name}: {chosen} decides", flush=True)
    sets = {s: unseen(net.outside[s], 1, n)[0] for s in TESTS}
    for name in dict.fromkeys((chosen, "msp")):
        for attack in ATTACKS if name != "msp" else ("algorithm1", *ATTACKS):
            value = mean_auroc(net, rows, "verdict", name, attack, x_in, sets)
            print(f"{net.name} {name} {attack} {value:.4f}", flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=250, help="images per set")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    whole = Library(pick_device(args.device), None)
    rows = Rows(args.out, KEY)
    for name in args.names:
        judge(opened(name, args.zoo, whole), rows, args.images)
    return 0


if __name__ == "__main__":
    sys.exit(main())
