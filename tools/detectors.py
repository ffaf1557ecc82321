"""docs/detectors.md, from the rows that `benchmarks.peers.openood` wrote on a GPU."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from tools.markdown import RESULTS, read, table

NEAR = ("cifar100", "tin")
FAR = ("svhn", "texture", "scenes", "mnist")
BAR = 2  # points of AUROC from OpenOOD's mean

# OpenOOD v1.5's leaderboard, CIFAR-10, ResNet-18, cross-entropy: near AUROC, mean and spread of 3 nets
OPENOOD = {
    "msp": (88.03, 0.25),
    "temperature_scaling": (88.09, 0.31),
    "odin": (82.87, 1.85),
    "mahalanobis": (84.20, 2.40),
    "layered_mahalanobis": (60.43, 0.26),
    "layered_mahalanobis_openood": (60.43, 0.26),
    "relative_mahalanobis": (89.80, 0.28),
    "gram": (58.66, 4.83),
    "gram_openood": (58.66, 4.83),
    "energy": (87.58, 0.46),
    "gradnorm": (54.90, 0.98),
    "react": (87.11, 0.61),
    "max_logit": (87.52, 0.47),
    "klm": (79.19, 0.80),
    "vim": (88.68, 0.28),
    "knn": (90.64, 0.20),
    "dice": (78.34, 0.79),
    "rankfeat": (79.46, 2.52),
    "ash_b": (75.27, 1.04),
    "she": (81.54, 0.51),
    "gen": (88.20, 0.30),
    "scale": (82.55, 0.36),
}

# what is known of a difference; printed only where it is larger than the bar
WHY = {
    "gram": "another definition than OpenOOD's, which is `gram_openood`",
    "layered_mahalanobis": "another definition than OpenOOD's, which is `layered_mahalanobis_openood`",
}

PROTOCOL = "float32 and TF32, torch's initial values, best epoch"  # of those that are compared

# of networks that stand beside them, and the name of their column
BESIDE = {
    "float32 and TF32, torch's initial values": "last epoch",
    "float32 and TF32, He's initial values, best epoch": "He's values",
    "bfloat16, He's initial values": "our recipe",
}


def page() -> str:
    """The whole page."""
    files = sorted(RESULTS.glob("detectors-cifar10*.jsonl"))
    every = [read(f) for f in files]
    nets = [rows for rows in every if _protocol(rows) == PROTOCOL]
    others = {n: [r for r in every if _protocol(r) == p] for p, n in BESIDE.items()}
    parts = [
        *head(files, nets),
        *clean(nets, others),
        *reading(nets),
        *percentiles(nets, others),
        ATTACKED,
        *attacked(every),
    ]
    return "\n".join(parts) + "\n"


Rows = list[dict[str, Any]]


def _protocol(rows: Rows) -> str:
    """How a network was trained; of rows that are about an attack alone, nothing."""
    return next((r["protocol"] for r in _of(rows, "setup")), "")


def head(files: Sequence[Path], nets: Sequence[Rows]) -> Iterable[str]:
    """The conditions, as the rows have them."""
    setups = [next(_of(rows, "setup")) for rows in nets]
    first = setups[0]
    accuracies = [100 * next(_of(rows, "accuracy"))["value"] for rows in nets]
    several = len(nets) > 1
    yield HEAD.format(
        files=", ".join(f"`docs/results/{f.name}`" for f in files),
        accuracy=_spread(accuracies),
        number=f"{len(nets)} ResNet-18s" if several else "One ResNet-18",
        seeds=_seeds([s["seed"] for s in setups]) if several else "",
        spread=SPREAD if several else "",
        all_seconds=" / ".join(str(s["seconds"]) for s in setups),
        all_best=" / ".join(str(s["best"]) for s in setups),
        all_epochs=" / ".join(dict.fromkeys(str(s["epochs"]) for s in setups)),
        **{k: f"{v:,}" if isinstance(v, int) else v for k, v in first.items()},
    )


def clean(nets: Sequence[Rows], others: dict[str, list[Rows]]) -> Iterable[str]:
    """Near and far AUROC, OpenOOD's near AUROC beside."""
    near, far = _means(nets, NEAR), _means(nets, FAR)
    bicubic = _means(nets, ("cifar100", "tin_bicubic"))
    beside = [_means(some, NEAR) for some in others.values()]
    heads = [
        *NEAR,
        "OpenOOD near",
        "difference",
        f"within {BAR}",
        "far",
        "near, bicubic",
        *(f"near, {name}" for name in others),
    ]
    lines = []
    for d in sorted(near, key=lambda d: -fmean(near[d])):
        theirs = difference = within = why = ""
        if d in OPENOOD:
            mean, spread = OPENOOD[d]
            gap = fmean(near[d]) - mean
            theirs, difference = f"{mean:.2f} ± {spread:.2f}", f"{gap:+.2f}"
            within = "yes" if abs(gap) <= BAR else "no"
            why = "" if abs(gap) <= BAR else reason(d, nets)
        cells = [_spread(near[d]), str(len(near[d]))]
        cells += [f"{fmean(_means(nets, (n,))[d]):.2f}" for n in NEAR]
        cells += [theirs, difference, within]
        cells += [_spread(found[d]) if d in found else "" for found in (far, bicubic, *beside)]
        lines.append([f"`{d}`", *cells, why])
    yield table(["detector", "near", "networks", *heads, "note"], lines)


def reason(detector: str, nets: Sequence[Rows]) -> str:
    """What the rows, or else we, know of a difference."""
    if detector in WHY:
        return WHY[detector]
    chosen = [
        ", ".join(f"{k} = {v:g}" for k, v in r["options"].items())
        for rows in nets
        for r in _of(rows, "tuned")
        if r["detector"] == detector
    ]
    known = [f"validation chose {'; '.join(dict.fromkeys(chosen))}"] if chosen else []
    ours = [f"{v - OPENOOD[detector][0]:+.2f}" for v in _means(nets, NEAR)[detector]]
    known.append(f"network by network {', '.join(ours)}")
    return "; ".join([*known, f"OpenOOD's own nets spread by {OPENOOD[detector][1]:.2f}"])


def reading(nets: Sequence[Rows]) -> Iterable[str]:
    """Notes on surprising numbers."""
    turned = [d for d, values in _means(nets, NEAR).items() if max(values) < 50]
    if turned:
        names = ", ".join(f"`{d}`" for d in turned)
        yield f"\nBelow 50 the ranking is reversed: {names}, at the options used here."


def percentiles(nets: Sequence[Rows], others: dict[str, list[Rows]]) -> Iterable[str]:
    """DICE's near AUROC by percentile."""
    found: dict[str, dict[float, list[float]]] = {}
    for name, some in {"trained as OpenOOD's": nets, **others}.items():
        for r in (r for rows in some for r in _of(rows, "percentile")):
            found.setdefault(name, {}).setdefault(r["percentile"], []).append(100 * r["auroc"])
    if found:
        places = next(iter(found.values()))
        yield PERCENTILES
        yield table(
            ["percentile", *(f"{p:g}" for p in places)],
            [
                [name, *(f"{fmean(v[p]):.2f}" if p in v else "" for p in places)]
                for name, v in found.items()
            ],
        )


def attacked(nets: Sequence[Rows]) -> Iterable[str]:
    """AUROC with both sides attacked, on the score itself and with its surrogates tried too."""
    found: dict[tuple[str, str], Rows] = {}
    for rows in nets:
        for r in _of(rows, "attacked"):
            found.setdefault((r["dataset"], r["detector"]), []).append(r)
    if not found:
        yield "Not measured."
        return
    left = max(fmean(r["worst"] for r in rows) for rows in found.values())
    yield f"The highest AUROC under attack is {left:.3f}.\n"
    lines = []
    for (dataset, detector), rows in sorted(found.items()):
        means = [fmean(r[k] for r in rows) for k in ("clean", "own", "worst")]
        values = [*means, max(r["high"] for r in rows)]
        cells = [f"`{detector}`", dataset, rows[0]["gradient"].replace("_", " ")]
        cells += [*(f"{v:.3f}" for v in values), str(rows[0]["n"]), str(len(rows))]
        lines.append(cells)
    head = ["detector", "against", "gradient", "clean", "score attacked", "surrogates tried too"]
    yield table([*head, "up to", "images per side", "networks"], lines)


def _of(rows: Rows, kind: str) -> Iterator[dict]:
    return (r for r in rows if r["kind"] == kind)


def _means(nets: Sequence[Rows], names: tuple[str, ...]) -> dict[str, list[float]]:
    """For each detector the mean AUROC over these sets, one number a network that has them all."""
    found: dict[str, list[float]] = {}
    for rows in nets:
        values = {(r["detector"], r["dataset"]): 100 * r["auroc"] for r in _of(rows, "clean")}
        for d in dict.fromkeys(d for d, _ in values):
            if all((d, n) in values for n in names):
                found.setdefault(d, []).append(fmean(values[d, n] for n in names))
    return found


def _seeds(seeds: Sequence[int]) -> str:
    if len(set(seeds)) == 1:
        return f", all of seed {seeds[0]} (sums on a GPU differ from run to run, and so do its networks)"
    return ", of seeds " + ", ".join(map(str, seeds))


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" ± {pstdev(values):.2f}" if len(values) > 1 else "")


SPREAD = """\
Accuracy and near are means over the networks on which they were measured ± their standard deviation.
"""

HEAD = """\
# Every detector on CIFAR-10 networks

Generated by `make docs` from {files}, which
`python -m benchmarks.peers.openood` wrote on one {device} with torch {torch} (seed 6: on a CPU).

{number} (32x32){seeds}, trained as OpenOOD trains: {all_epochs} epochs of cross-entropy ({all_seconds} s beside other
jobs), SGD, batch 128, learning rate 0.1 with cosine decay, weight decay 5e-4, crop and flip, float32 with convolutions in
TF32, torch's own initial values, best epoch on {validation} held-out test images (here {all_best}). Accuracy {accuracy} %;
OpenOOD's three networks 95.06 ± 0.30.
{spread}
Detectors are fitted on {fit} training images; ReAct, KL matching and temperature scaling on {validation} held-out test images,
as in OpenOOD. ODIN, KNN, GEN, ReAct, ASH-B and SCALE are tuned with OpenOOD's grids on those {validation} and {outliers}
{outliers_of} images; DICE keeps percentile 90, as there; PRO has its authors' values. `ensemble` is the mean of MSP and
energy, `deep_ensemble` one network twice (so it equals `entropy`), `low_resolution` MSP at 12x12 pixels: examples to attack.
`gram_openood` and `layered_mahalanobis_openood` are what OpenOOD v1.5 computes as Gram and MDSEns (`rood_papers.presets`).

## Clean AUROC, per cent

Near: CIFAR-100 test and Tiny-ImageNet validation images without classes of CIFAR-10 and without those tuned on (10,000 and
3,380 images). Far: SVHN, ten DTD classes, six kinds of scenes, MNIST, at most 3,000 images each: stand-ins, so the far column
is not comparable with OpenOOD's. Rows of fewer networks are not to be ranked among means of more. Other columns:

- *near, bicubic*: Tiny-ImageNet as halved by Pillow; OpenOOD halves bilinearly, which *near* imitates by a filter (to 0.3 of a
  grey level). Gram and MDSEns, which use first layers, see the difference.
- *near, last epoch*: two networks (seeds 1, 2) with the last epoch (seed 1 alone where no ± stands).
- *near, He's values*: one network (seed 6) from other initial values, 90 epochs, weights rounded to float16, on a CPU.
- *near, our recipe*: one network with rood's usual training (last epoch, bfloat16, He's initial values).

RankFeat differs by more than ten points between networks that were trained alike.
"""

PERCENTILES = """
## DICE and its percentile

DICE keeps the weights whose contribution is above a percentile. With ten classes about a tenth of the weights matters for a
class, so the AUROC already falls at the usual 90; how far depends on the network. (CIFAR-100 thinned to 9,000 images.)
"""

ATTACKED = """
## Both sides attacked at 8/255, without a defence

AUROC under PGD-100 with a random start; where the gradient of the score is poor (Gram is flat inside its bounds, KL matching
saturates), its surrogate is tried too. *Up to* is the end of a 95 % interval, by Wilson's rule where the AUROC is 0.
One network with the last epoch (seed 1; `pro_gen` and `uniform_cross_entropy`: seed 2), for ten detectors also one with the
best (seed 3); `pro_msp` and `pro_msp_t`: seed 7. The two presets of OpenOOD's were not attacked.
"""
