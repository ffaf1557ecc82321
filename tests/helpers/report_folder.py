"""A small results folder with everything an audit leaves behind, its names plain or hostile."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from rood.evaluation.rows import Row

EPS = ("0.02", "0.05", "0.1")
N = 400
CLASSES = ("zero", "one", "two", "three")
LABELS = np.arange(N) % len(CLASSES)
NETWORKS = {"digits-ce": (1.0, 0.991), "digits-aloe": (0.22, 0.974)}  # softness and accuracy
SLOPES = {"msp": 28.0, "energy": 34.0, "knn": 24.0, "vim": 30.0}
THRESHOLD = 1.64
HOSTILE = {
    "digits-ce": "<script>window.hacked = true</script></script>",
    "digits-aloe": "'\"><img src=x onerror=window.hacked=true>",
    "msp": "a\nb\u2028\u202e</title></style>--><b>bold</b>",
    "knn": "{{ 7 * 7 }}%{x}<a href='javascript:window.hacked=true'>x</a>",
    "fashion": "../<svg onload=window.hacked=true>",
}
Who = tuple[str, str]  # network, detector


def row(**changes: Any) -> Row:
    """A row with arbitrary values except those given."""
    usual = {
        "model": "net",
        "detector": "msp",
        "dataset": "fashion",
        "scenario": "clean",
        "side": "none",
        "metric": "auroc",
        "value": 0.97,
        "low": None,
        "high": None,
        "n_in": 400,
        "n_out": 400,
        "seed": 0,
        "verdict": "-",
    }
    return Row(**(usual | changes))


def case(detector: str, clean: float, attacked: float, **changes: Any) -> list[Row]:
    """A detector before and under an attack."""
    attack = {"scenario": "pgd linf:0.1", "side": "both", "verdict": "pass"} | changes
    where = {key: changes[key] for key in ("model", "dataset") if key in changes}
    before = row(detector=detector, value=clean, **where)
    return [before, row(detector=detector, value=attacked, **attack)]


def flag(name: str, verdict: str, detector: str = "msp", value: float = 0.5) -> Row:
    """What a check said of an attack of `case`."""
    attack = {"scenario": "pgd linf:0.1", "side": "both"}
    return row(detector=detector, metric=f"flag_{name}", value=value, verdict=verdict, **attack)


def build(
    folder: Path,
    hostile: bool = False,
    networks: tuple[str, ...] = tuple(NETWORKS),
    detectors: int = 4,
    labelled: bool = True,
    eps: tuple[str, ...] = EPS,
) -> Path:
    """Networks with detectors, two OOD sets, three budgets, flags and examples.

    Without labels it is a folder as rood 0.1 wrote it: no classes, no date, no command.
    """
    name = lambda word: HOSTILE.get(word, word) if hostile else word
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    slopes = SLOPES | {f"detector-{i}": 4.0 * i for i in range(detectors - len(SLOPES))}
    for model in networks:
        softness, accuracy = NETWORKS[model]
        fact = {"model": name(model), "dataset": "inside"}
        between = {"low": accuracy - 0.012, "high": accuracy + 0.005, "n_in": N, "n_out": 0}
        rows.append(row(**fact, detector="", metric="accuracy", value=accuracy, **between))
        for detector, slope in list(slopes.items())[:detectors]:
            who = (name(model), name(detector))
            rows.append(row(**fact, detector=who[1], metric="threshold", value=THRESHOLD))
            inside = rng.normal(0, 1, N)
            _save_scores(folder, who, ("inside", "inside"), "clean", inside, labelled)
            _save_scores(folder, who, ("calibrate", "inside"), "clean", inside + 50)
            for dataset, gap in (("fashion", 3.2), ("noise", 4.1)):
                clean = (inside, rng.normal(gap, 1.2, N))
                pushes = {e: slope * softness * float(e) for e in eps}
                masked = (model, detector) == ("digits-aloe", "vim")
                rows += _dataset(folder, who, name(dataset), clean, pushes, masked, labelled)
            _save_examples(folder, who, name("fashion"), rng, labelled)
        if labelled:
            _save_classes(folder, name(model), rng, accuracy)
    (folder / "rows.jsonl").write_text("".join(r.line() for r in rows))
    (folder / "manifest.json").write_text(json.dumps(_manifest(name, networks, labelled)))
    return folder


def unfinished(folder: Path) -> Path:
    """An audit that was killed among the rows of its second network."""
    build(folder)
    rows = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(rows[: int(0.7 * len(rows))]))
    return _restate(folder, finished=False)


def untrustworthy(folder: Path) -> Path:
    """Few images, the same on both sides, a network that guesses, attacks that fail."""
    build(folder, networks=("digits-ce",))
    lines = map(json.loads, (folder / "rows.jsonl").read_text().splitlines())
    rows = [Row(**line | {"n_in": min(line["n_in"], 24)}) for line in lines]
    for i, r in enumerate(rows):
        if r.metric == "accuracy":
            rows[i] = replace(r, value=0.17, low=0.06, high=0.36)
        elif r.metric == "auroc" and r.side != "none":
            rows[i] = replace(r, value=0.9, low=0.85, high=0.95, verdict="fail")
    (folder / "rows.jsonl").write_text("".join(r.line() for r in rows))
    data = json.loads((folder / "manifest.json").read_text())["data"]
    data["fashion"]["notes"] = ["380 of 400 images are in-distribution images too"]
    data["noise"]["fingerprint"] = data["inside"]["fingerprint"]
    return _restate(folder, data=data)


def _restate(folder: Path, **facts: Any) -> Path:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    return folder


def _dataset(folder, who: Who, dataset: str, clean, pushes, masked, labelled) -> list[Row]:
    rows = _case(who, dataset, "clean", "none", *clean, "-")
    _save_scores(folder, who, (dataset, "outside"), "clean", clean[1])
    for eps, push in pushes.items():
        scenario = f"pgd linf:{eps}"
        inside, outside = clean[0] + push, clean[1] - 1.2 * push
        _save_scores(folder, who, ("inside", "inside"), scenario, inside, labelled)
        _save_scores(folder, who, (dataset, "outside"), scenario, outside)
        verdict = "fail" if masked else "warn" if who[1] == "energy" else "pass"
        rows += _case(who, dataset, scenario, "outside", clean[0], outside, verdict)
        rows += _case(who, dataset, scenario, "inside", inside, clean[1], verdict)
        rows += _case(who, dataset, scenario, "both", inside, outside, verdict)
        flags = {
            "zero_gradient": (0.62, "fail") if masked else (0.0, "pass"),
            "random_search_wins": (0.31, "fail") if masked else (0.0, "pass"),
            "tied_scores": (0.04, "warn") if who[1] == "energy" else (0.0, "pass"),
            "some_new_check": (0.5, "pass"),
        }
        where = {"model": who[0], "detector": who[1], "dataset": dataset, "scenario": scenario}
        rows += [
            row(**where, side="both", metric=f"flag_{flag}", value=value, verdict=verdict)
            for flag, (value, verdict) in flags.items()
        ]
    return rows


def _case(who: Who, dataset, scenario, side, inside, outside, verdict) -> list[Row]:
    values = {
        "auroc": float(np.mean(outside[:, None] > inside[None, :])),
        "fpr95_in": float(np.mean(outside <= np.quantile(inside, 0.95))),
        "fpr95_in_fixed": float(np.mean(outside <= THRESHOLD)),
        "fpr95_out_fixed": float(np.mean(inside > THRESHOLD)),
        "aupr_in": math.nan,
    }
    where = {"model": who[0], "detector": who[1], "dataset": dataset, "scenario": scenario}
    return [
        row(
            **where,
            side=side,
            metric=metric,
            value=value,
            low=max(0.0, value - 0.02),
            high=min(1.0, value + 0.015),
            verdict=verdict,
        )
        for metric, value in values.items()
    ]


def _file(folder: Path, kind: str, facts: dict[str, str]) -> Path:
    digest = hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:16]
    (folder / kind).mkdir(parents=True, exist_ok=True)
    return folder / kind / f"{digest}.safetensors"


def _save_scores(
    folder: Path, who: Who, images: tuple[str, str], condition: str, scores, labelled: bool = False
) -> None:
    """The scores of one detector on one image set."""
    facts = {"model": who[0], "detector": who[1], "dataset": images[0], "role": images[1]}
    facts["condition"] = condition
    arrays = {"scores": scores.astype(np.float32)} | ({"labels": LABELS} if labelled else {})
    save_file(arrays, _file(folder, "scores", facts), facts)


def _save_classes(folder: Path, model: str, rng: np.random.Generator, accuracy: float) -> None:
    wrong = rng.random(N) > accuracy
    facts = {"model": model, "dataset": "inside"}
    save_file({"class": LABELS + wrong, "labels": LABELS}, _file(folder, "classes", facts), facts)


def _save_examples(folder, who: Who, dataset: str, rng, labelled: bool) -> None:
    y, x = np.mgrid[0:28, 0:28] / 27
    original = np.stack([np.abs(np.sin(3 * (i + 1) * x) * np.cos(4 * y)) for i in range(4)])
    original = original[:, None].astype(np.float32)
    change = 0.1 * np.sign(rng.normal(size=original.shape))
    tensors = {
        "original": original,
        "attacked": np.clip(original + change, 0, 1).astype(np.float32),
        "before": np.float32([3.1, 2.8, 4.0, 1.2]),
        "after": np.float32([-1.3, -0.4, 2.2, -2.0]),
    }
    if labelled:
        tensors["labels"] = np.arange(4) % 3
    facts = {"model": who[0], "detector": who[1], "dataset": dataset, "role": "outside"}
    facts |= {"condition": "pgd linf:0.1", "direction": "look_in"}
    save_file(tensors, _file(folder, "examples", facts), facts)


def _manifest(name, networks: tuple[str, ...], labelled: bool) -> dict[str, object]:
    image = {"n": N, "shape": [1, 28, 28]}
    classes = {"classes": [*CLASSES[:3], name("msp")]} if labelled else {}
    typed = "rood audit --inside folder:digits --outside fashion=folder:fashion --eps 0.02,0.05,0.1"
    newer = {"date": "2026-03-01T12:34:56+00:00", "command": typed} if labelled else {}
    return {
        "rood": "0.1.0",
        "finished": True,
        **newer,
        "settings": {"attack": {"steps": 40, "restarts": 2}, "note": name("msp")},
        "models": {name(m): {"fingerprint": "ab12" * 8, "classes": 6} for m in networks},
        "data": {
            "inside": {"role": "inside", **image, "fingerprint": "cd34" * 8, **classes},
            name("fashion"): {
                "role": "outside",
                **image,
                "fingerprint": "ef56" * 8,
                "notes": ["resized from 32 x 32", name("digits-aloe")],
            },
            "noise": {"role": "outside", **image, "fingerprint": "0a78" * 8},
        },
        "split": {"rule": "by a hash of the image", "fit": 2000, "calibrate": 400, "test": 400},
        "detectors": {
            name("msp"): {"gradient": "exact", "settings": {}, "paper": "arXiv:1610.02136"},
            name("knn"): {"gradient": "almost_everywhere", "settings": {"k": 50}, "paper": "-"},
        },
        "versions": {"torch": "2.13.0", "numpy": "2.0"},
        "hardware": {"device": "cpu", "cores": 2},
        "cost": {"seconds": 61.5, "forwards": 120_000, "backwards": 40_000},
        "skipped": ["gram: needs taps"],
    }
