"""The tables of the page, as plain rows for the template."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rood.evaluation.checks.base import Wording
from rood.evaluation.rows import CERTIFIED, SIDES, Row
from rood.evaluation.store import Contents
from rood.report.numbers import Numbers, highest, lowest
from rood.report.outcomes import explain, flag_name
from rood.report.words import percent, shown

SEVERITY = {"-": 0, "pass": 1, "warn": 2, "fail": 3}
MOST_ROWS = 2000  # of the table of all numbers; the rest is in rows.jsonl


@dataclass(frozen=True)
class DetectorLine:
    """One detector of a network in the worst case over the OOD sets, the decisive number first."""

    detector: str
    both: Row | None
    clean: Row | None
    outside: Row | None
    inside: Row | None
    passes: tuple[Row, Row | None] | None  # OOD images below the threshold: clean, attacked

    @property
    def cells(self) -> tuple[Row | None, ...]:
        """The AUROCs, in the order of the columns."""
        return self.both, self.clean, self.outside, self.inside

    @property
    def counted(self) -> Row | None:
        """A row that says of how many images the line is."""
        return next((row for row in self.cells if row), None)


@dataclass(frozen=True)
class WorstCase:
    """One network under attacks of one norm at the largest eps; the worst over OOD datasets."""

    model: str
    budget: str  # "" where nothing was attacked
    accuracy: float | None
    several: bool  # more than one OOD set, so each cell names its own
    lines: list[DetectorLine]


def worst_cases(numbers: Numbers, manifest: Mapping[str, Any]) -> list[WorstCase]:
    """A table for each network and norm, best detector first."""
    return [
        WorstCase(
            model,
            label,
            _accuracy(numbers, manifest, model),
            len(numbers.datasets(model)) > 1,
            _worst_lines(numbers, model, numbers.largest(family)),
        )
        for model in numbers.models
        if numbers.detectors(model)
        for family, label in (numbers.strongest or {"": ""}).items()
    ]


def _worst_lines(numbers: Numbers, model: str, scenarios: list[str]) -> list[DetectorLine]:
    lines = []
    for detector in numbers.detectors(model):
        at = {s: lowest(numbers.get("auroc", model, detector, scenarios, (s,))) for s in SIDES}
        clean = lowest(numbers.get("auroc", model, detector))
        passes = numbers.let_through(model, detector, scenarios)
        lines.append(DetectorLine(detector, clean=clean, passes=passes, **at))
    worst = lambda line: min((row.value for row in line.cells if row), default=-1.0)
    return sorted(lines, key=lambda line: (-worst(line), line.detector))


def _accuracy(numbers: Numbers, manifest: Mapping[str, Any], model: str) -> float | None:
    if row := numbers.accuracy(model):
        return row.value
    stated = part(part(manifest, "models"), model).get("accuracy")
    return float(stated) if isinstance(stated, int | float) and math.isfinite(stated) else None


@dataclass(frozen=True)
class Fixed:
    """One network at its deployed thresholds."""

    model: str
    budget: str
    lines: list[tuple[str, float | None, list[Row | None]]]  # detector, threshold, four shares


def fixed(numbers: Numbers) -> list[Fixed]:
    """Shares of OOD accepted and ID rejected, clean and attacked; the worst over datasets."""
    tables = [
        Fixed(model, label, _fixed_lines(numbers, model, numbers.largest(family)))
        for model in numbers.models
        for family, label in (numbers.strongest or {"": ""}).items()
    ]
    return [table for table in tables if table.lines]


def _fixed_lines(
    numbers: Numbers, model: str, attacks: list[str]
) -> list[tuple[str, float | None, list[Row | None]]]:
    lines = []
    for detector in numbers.detectors(model):
        cells = []
        for metric, side in (("fpr95_in_fixed", "outside"), ("fpr95_out_fixed", "inside")):
            cells.append(highest(numbers.get(metric, model, detector)))
            cells.append(highest(numbers.get(metric, model, detector, attacks, (side, "both"))))
        if any(cells):
            lines.append((detector, numbers.threshold(model, detector), cells))
    return lines


@dataclass(frozen=True)
class FlagSummary:
    """All flags of one check."""

    name: str
    wording: Wording
    verdict: str  # the worst
    checked: int
    passed: int
    places: list[str]  # where it was not passed, with the evidence


def flag_summaries(numbers: Numbers) -> list[FlagSummary]:
    """Every check of the audit, the most serious flags first."""
    by_name: dict[str, list[Row]] = {}
    for row in numbers.rows:
        if row.metric.startswith("flag_"):
            by_name.setdefault(row.metric, []).append(row)
    found = []
    for metric, rows in by_name.items():
        wording = explain(metric)
        verdict = max((row.verdict for row in rows), key=lambda v: SEVERITY.get(v, 0))
        bad = [row for row in rows if SEVERITY.get(row.verdict, 0) > 1]
        places = _places(bad, wording.share)
        counts = len(rows), len(rows) - len(bad)
        found.append(FlagSummary(flag_name(metric), wording, verdict, *counts, places))
    return sorted(found, key=lambda f: (-SEVERITY.get(f.verdict, 0), f.wording.title))


def _places(rows: list[Row], share: bool) -> list[str]:
    by_detector: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_detector.setdefault((row.model, row.detector), []).append(row)
    said = []
    for (model, detector), flags in by_detector.items():
        rank = lambda r: (SEVERITY.get(r.verdict, 0), r.value if math.isfinite(r.value) else 0)
        worst = max(flags, key=rank)
        where = f"{shown(detector)} on {shown(model)}" if detector else shown(model)
        evidence = percent(worst.value) if share else f"{worst.value:.3g}"
        times = f", {len(flags)} times, worst" if len(flags) > 1 else ""
        said.append(f"{where}: {worst.verdict}{times} {evidence}")
    return said if len(said) <= 8 else [*said[:8], f"and {len(said) - 8} more: see all numbers"]


def all_numbers(numbers: Numbers) -> dict[str, Any]:
    """Every number: a line for each case, a column for each metric."""
    plain = lambda row: row.metric.removeprefix(CERTIFIED)  # its scenario says who certified it
    metrics = list(dict.fromkeys(map(plain, numbers.rows)))
    metrics = [name for name in metrics if not name.startswith("class_")]  # a table of their own
    metrics.sort(key=lambda name: (name.startswith("flag_"), name not in ("accuracy", "threshold")))
    cases: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in (r for r in numbers.rows if plain(r) in metrics):
        case = (row.model, row.detector, row.dataset, row.scenario, row.side, str(row.seed))
        cases.setdefault(case, {})[plain(row)] = row
    lines = [(case, [cells.get(name) for name in metrics]) for case, cells in cases.items()]
    return {
        "metrics": metrics,
        "lines": lines[:MOST_ROWS],
        "left_out": max(0, len(lines) - MOST_ROWS),
    }


def unfinished(folder: Contents, numbers: Numbers) -> str:
    """One sentence on what an audit that has not ended still lacks; empty when nothing does."""
    said = list(folder.problems)
    manifest = folder.manifest or {}
    if manifest.get("finished") is False:
        said.append("the manifest says that the audit has not ended")
    skipped = (str(said).partition(":")[0] for said in many(manifest, "skipped"))  # "a, b: why"
    excused = {name.strip() for names in skipped for name in names.split(",")}
    there = {
        (r.model, r.detector, r.dataset, r.scenario, r.side)
        for r in numbers.rows
        if r.metric == "auroc"
    }
    attacks = {(s, side) for *_, s, side in there if s in numbers.scenarios and side in SIDES}
    wanted = [
        (model, detector, dataset, scenario, side)
        for model in numbers.models
        for detector in numbers.detectors(model)
        if detector not in excused
        for dataset in numbers.datasets(model)
        for scenario, side in {("clean", "none")} | attacks
    ]
    if missing := sum(case not in there for case in wanted):
        said.append(f"{missing} of {len(wanted)} AUROC values are missing")
    untouched = [shown(m) for m in part(manifest, "models") if m not in numbers.models]
    untouched += [shown(d) for d in part(manifest, "detectors") if d not in numbers.all_detectors]
    if untouched := [name for name in untouched if name not in excused]:
        said.append(f"nothing is known yet about {', '.join(untouched)}")
    return "; ".join(said)


def part(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested table of the manifest; empty where it is missing or something else."""
    found = mapping.get(name)
    return found if isinstance(found, Mapping) else {}


def many(mapping: Mapping[str, Any], name: str) -> list[Any]:
    """A list of the manifest; empty where it is missing or something else."""
    found = mapping.get(name)
    return list(found) if isinstance(found, list) else []


def cost(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Passes through the network, seconds, and memory where it was counted."""
    facts = part(manifest, "hardware")
    memory = {k: facts[k] for k in ("peak_memory_mb", "peak_device_memory_mb") if facts.get(k)}
    return {**part(manifest, "cost"), **memory}


def null_spaces(manifest: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """For each code of a network: pixels, first smaller layer, code, its size, its null space."""
    lines = []
    for network in part(manifest, "models"):
        found = part(part(part(manifest, "models"), network), "dimensions")
        sizes = [found.get("input", "–"), found.get("reduced_at") or "none"]
        for code in many(found, "codes"):
            known = code if isinstance(code, Mapping) else {}
            cells = [known.get(key, "–") for key in ("name", "size", "null_space")]
            lines.append((network, sizes + cells))
    return lines
