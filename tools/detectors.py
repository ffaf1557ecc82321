"""docs/detectors.md, from the rows that `benchmarks.peers.openood` wrote on a GPU."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev

RESULTS = Path(__file__).parent.parent / "docs" / "results"

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
    every = [[json.loads(line) for line in f.read_text().splitlines()] for f in files]
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


Rows = list[dict]


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
    yield f"| detector | near | networks | {' | '.join(heads)} | |"
    yield f"|{'---|' * (4 + len(heads))}"
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
        yield f"| `{d}` | {' | '.join(cells)} | {why} |"


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
    """What a reader would stumble over."""
    turned = [d for d, values in _means(nets, NEAR).items() if max(values) < 50]
    if turned:
        names = ", ".join(f"`{d}`" for d in turned)
        yield f"\nBelow 50 the ranking is turned round: {names}, at the options used here."


def percentiles(nets: Sequence[Rows], others: dict[str, list[Rows]]) -> Iterable[str]:
    """DICE's near AUROC against the place where it cuts."""
    found: dict[str, dict[float, list[float]]] = {}
    for name, some in {"trained as OpenOOD's": nets, **others}.items():
        for r in (r for rows in some for r in _of(rows, "percentile")):
            found.setdefault(name, {}).setdefault(r["percentile"], []).append(100 * r["auroc"])
    if found:
        places = next(iter(found.values()))
        yield PERCENTILES
        yield f"| percentile | {' | '.join(f'{p:g}' for p in places)} |"
        yield f"|{'---|' * (1 + len(places))}"
    for name, values in found.items():
        cells = [f"{fmean(values[p]):.2f}" if p in values else "" for p in places]
        yield f"| {name} | {' | '.join(cells)} |"


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
    yield f"The most that is left to any detector is {left:.3f}.\n"
    yield (
        "| detector | against | gradient | clean | score attacked | surrogates tried too | up to "
        "| images a side | networks |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for (dataset, detector), rows in sorted(found.items()):
        means = [fmean(r[k] for r in rows) for k in ("clean", "own", "worst")]
        values = [*means, max(r["high"] for r in rows)]
        numbers = " | ".join(f"{v:.3f}" for v in values)
        kind = rows[0]["gradient"].replace("_", " ")
        yield (f"| `{detector}` | {dataset} | {kind} | {numbers} | {rows[0]['n']} | {len(rows)} |")


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

{number} (32x32){seeds}, trained here as OpenOOD trains: {all_epochs} epochs of cross-entropy ({all_seconds} s beside other
jobs), SGD, batch 128, learning rate 0.1 falling as a cosine, weight decay 5e-4, crop and flip, float32 with convolutions
in TF32, torch's own initial values; the epoch best on {validation} test images held out is kept (here {all_best}). Accuracy
{accuracy} %, OpenOOD's three nets 95.06 ± 0.30.
{spread}Detectors are fitted on {fit} training images; ReAct, KL matching and temperature scaling on {validation} test images
held out for that, as in OpenOOD. ODIN, KNN, GEN, ReAct, ASH-B and SCALE are tuned with OpenOOD's grids and rule on
those {validation} and {outliers} {outliers_of} images; DICE keeps its percentile of 90, as there; PRO has its authors'
values. Tested on the other test images. `ensemble` is the mean of MSP and energy, `deep_ensemble` one network twice (so
it equals `entropy`), `low_resolution` shows MSP the images at 12x12: they are here to be attacked, not as good detectors.
`gram_openood` and `layered_mahalanobis_openood` are `OpenOODGram` and `OpenOODMDSEns` of `rood_papers.presets`, what OpenOOD v1.5
computes as Gram and MDSEns.

## Clean AUROC, per cent

Near: CIFAR-100 test and Tiny-ImageNet validation (half of it) without the classes it shares with CIFAR-10, less those tuned
on: 10,000 and 3,380 images. Rows of fewer networks are not to be ranked among means of more. Tiny-ImageNet was made half
as large by Pillow bicubically, OpenOOD's bilinearly: a filter turns the one into the other to 0.3 of a grey level, and
*near* is of such images; *near, bicubic* of those as they came, which Gram and MDSEns, who look at first layers, see
otherwise. Far: SVHN, ten DTD classes, six kinds of scenes in place of Places365, MNIST, 3,000 images each at most: these are
stand-ins, so the far column is not comparable with OpenOOD's. *Near, last epoch* is of two networks (seeds 1, 2) whose
last epoch was kept (seed 1 alone where no ± stands); *near, He's values* of one (seed 6) from other initial values, with
90 epochs, its weights rounded to float16 and scored on a CPU; *near, our recipe* of one of rood's usual training (the last
epoch, in bfloat16 and from He's initial values). RankFeat, which stands or falls with the next-to-last stage, hangs most on
such choices, and differs by more than ten points between networks that were trained alike.
"""

PERCENTILES = """
## DICE and its percentile

DICE keeps the weights whose contribution is above a percentile. With ten classes about a tenth of the weights speaks for
a class, so that the usual 90 cuts where the AUROC falls already: how far depends on the network. (CIFAR-100 is thinned to
9,000 images here.)
"""

ATTACKED = """
## Both sides attacked at 8/255, without a defence

One network whose last epoch was kept (seed 1; `pro_gen` and `uniform_cross_entropy`: seed 2), for ten detectors also one
whose best was (seed 3); `pro_msp` and `pro_msp_t`: another of the latter (seed 7). The two presets of OpenOOD's were not
attacked. AUROC under PGD-100 with a random start, in-distribution images made to look out and OOD images made to look in.
Where the gradient of the score itself is poor (Gram is flat inside its bounds, KL matching saturates), its surrogate is
tried too. *Up to* is the end of a 95 % interval; where every image of one side lies beyond the other (AUROC 0) it is by
Wilson's rule, which is wider than the usual one just above 0.
"""
