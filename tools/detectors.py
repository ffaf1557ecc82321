"""docs/evidence/detectors.md, from the rows that `benchmarks.peers.openood` wrote on a GPU."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from tools.markdown import RESULTS, read, table, texts

TEXT = texts("detectors")
OPENOOD = TEXT["openood"]  # near AUROC, mean and spread of its three networks
NEAR = ("cifar100", "tin")
FAR = ("svhn", "texture", "scenes", "mnist")
BAR = 2  # points of AUROC from OpenOOD's mean


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
        TEXT["attacked"],
        *attacked(every),
    ]
    return "\n".join(parts) + "\n"


Rows = list[dict[str, Any]]


class Known(NamedTuple):
    """What other pages say of a detector, in per cent: means over the networks of this page."""

    near: float
    far: float
    attacked: float | None  # both sides, 8/255; None: not attacked


def known() -> dict[str, Known]:
    """Every detector that was measured, by name."""
    every = [read(f) for f in sorted(RESULTS.glob("detectors-cifar10*.jsonl"))]
    nets = [rows for rows in every if _protocol(rows) == PROTOCOL]
    near, far = _means(nets, NEAR), _means(nets, FAR)
    worst: dict[str, list[float]] = {}
    for r in (r for rows in every for r in _of(rows, "attacked")):
        worst.setdefault(r["detector"], []).append(100 * r["worst"])
    return {
        d: Known(fmean(near[d]), fmean(far[d]), fmean(worst[d]) if d in worst else None)
        for d in near
        if d in far
    }


def _protocol(rows: Rows) -> str:
    """How a network was trained; of rows that are about an attack alone, nothing."""
    return next((r["protocol"] for r in _of(rows, "setup")), "")


def head(files: Sequence[Path], nets: Sequence[Rows]) -> Iterable[str]:
    """The conditions, as the rows have them."""
    setups = [next(_of(rows, "setup")) for rows in nets]
    first = setups[0]
    accuracies = [100 * next(_of(rows, "accuracy"))["value"] for rows in nets]
    several = len(nets) > 1
    yield TEXT["head"].format(
        files=", ".join(f"`docs/results/{f.name}`" for f in files),
        accuracy=_spread(accuracies),
        number=f"{len(nets)} ResNet-18s" if several else "One ResNet-18",
        seeds=_seeds([s["seed"] for s in setups]) if several else "",
        spread=TEXT["spread"] if several else "",
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
    if detector in TEXT["why"]:
        return TEXT["why"][detector]
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
        yield TEXT["percentiles"]
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
