"""A small results folder with everything an audit leaves behind, its names plain or hostile."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from rood.evaluation.rows import Row

EPS = ("0.02", "0.05", "0.1")
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


def build(folder: Path, hostile: bool = False) -> Path:
    """Two networks, four detectors, two outside sets, three budgets, flags and examples."""
    name = lambda word: HOSTILE.get(word, word) if hostile else word
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    slopes = {"msp": 28.0, "energy": 34.0, "knn": 24.0, "vim": 30.0}
    for model, softness, accuracy in (("digits-ce", 1.0, 0.991), ("digits-aloe", 0.22, 0.974)):
        fact = {"model": name(model), "dataset": "inside"}
        rows.append(row(**fact, detector="", metric="accuracy", value=accuracy))
        for detector, slope in slopes.items():
            who = (name(model), name(detector))
            rows.append(row(**fact, detector=who[1], metric="threshold", value=THRESHOLD))
            inside = rng.normal(0, 1, 400)
            _save_scores(folder, who, ("inside", "inside"), "clean", inside)
            _save_scores(folder, who, ("calibrate", "inside"), "clean", inside + 50)
            for dataset, gap in (("fashion", 3.2), ("noise", 4.1)):
                clean = (inside, rng.normal(gap, 1.2, 400))
                pushes = {eps: slope * softness * float(eps) for eps in EPS}
                masked = (model, detector) == ("digits-aloe", "vim")
                rows += _dataset(folder, who, name(dataset), clean, pushes, masked)
            _save_examples(folder, who, name("fashion"), rng)
    (folder / "rows.jsonl").write_text("".join(r.line() for r in rows))
    (folder / "manifest.json").write_text(json.dumps(_manifest(name)))
    return folder


def _dataset(folder, who: Who, dataset: str, clean, pushes, masked: bool) -> list[Row]:
    rows = _case(who, dataset, "clean", "none", *clean, "-")
    _save_scores(folder, who, (dataset, "outside"), "clean", clean[1])
    for eps, push in pushes.items():
        scenario = f"pgd linf:{eps}"
        inside, outside = clean[0] + push, clean[1] - 1.2 * push
        _save_scores(folder, who, ("inside", "inside"), scenario, inside)
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


def _save_scores(folder: Path, who: Who, images: tuple[str, str], condition: str, scores) -> None:
    facts = {"model": who[0], "detector": who[1], "dataset": images[0], "role": images[1]}
    facts["condition"] = condition
    save_file({"scores": scores.astype(np.float32)}, _file(folder, "scores", facts), facts)


def _save_examples(folder: Path, who: Who, dataset: str, rng: np.random.Generator) -> None:
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
    facts = {"model": who[0], "detector": who[1], "dataset": dataset, "role": "outside"}
    facts |= {"condition": "pgd linf:0.1", "direction": "look_in"}
    save_file(tensors, _file(folder, "examples", facts), facts)


def _manifest(name) -> dict[str, object]:
    image = {"n": 400, "shape": [1, 28, 28], "fingerprint": "cd34" * 8}
    return {
        "rood": "0.1.0",
        "finished": True,
        "settings": {"attack": {"steps": 40, "restarts": 2}, "note": name("msp")},
        "models": {name(m): {"fingerprint": "ab12" * 8} for m in ("digits-ce", "digits-aloe")},
        "data": {
            "digits": {"role": "inside", **image},
            name("fashion"): {
                "role": "outside",
                **image,
                "notes": ["resized from 32 x 32", name("digits-aloe")],
            },
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
