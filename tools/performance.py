"""docs/evidence/performance.md from the rows that `make bench` and two scripts for a GPU wrote."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.markdown import RESULTS, Row, read, table, texts

PREFIX = "performance-"
TEXT = texts("performance")


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    runs = dict(_read(results))
    parts = [TEXT["head"], _verdict(runs), *_bars(runs)]
    if points := _points(runs, "fitting"):
        parts += [TEXT["memory"], *_memory(points)]
    if points := _points(runs, "auditing"):
        parts += [TEXT["audited"], _table(points)]
    if "growth" in runs:
        parts += [TEXT["growth"], *_growth(runs["growth"])]
    if points := _points(runs, "beside-pytorch-ood"):
        parts += [TEXT["beside"], _table(list({p["library"]: p for p in points}.values()))]
    if points := _points(runs, "gpu"):
        parts += [TEXT["gpu"], _table([p for p in points if "network" in p])]
        parts += [TEXT["bank"], _table([p for p in points if "bank" in p])]
    return "\n\n".join(parts) + "\n"


def _read(results: Path) -> Iterator[tuple[str, list[Row]]]:
    for path in sorted(results.glob(f"{PREFIX}*.jsonl")):
        yield path.stem.removeprefix(PREFIX), read(path)


def _points(runs: Mapping[str, list[Row]], name: str) -> list[Row]:
    return [p for row in runs.get(name, ()) for p in row.get("points", ())]


def _verdict(runs: Mapping[str, list[Row]]) -> str:
    claims = [r for rows in runs.values() for r in rows if "bar" in r]
    if not claims:
        return "Not measured yet."
    missed = [r["name"] for r in claims if not r["holds"]]
    short = f"**{len(claims) - len(missed)} of {len(claims)} limits hold.**"
    return short + (f" Missed: {'; '.join(missed)}." if missed else "")


def _bars(runs: Mapping[str, list[Row]]) -> Iterator[str]:
    lines = []
    machines: dict[str, list[str]] = {}
    for name, rows in runs.items():
        for r in rows:
            if "run" in r:
                machines.setdefault(_machine(r["run"]), []).append(f"`{name}`")
                continue
            bar = f"{'>=' if r['at_least'] else '<='} {r['bar']:g}"
            spread = f"{r['spread']:.3f}, {r['runs']}" if r["runs"] > 1 else "one run"
            cells = [f"`{name}`", r["name"], f"**{r['value']:.3f}**", spread, bar]
            cells += ["yes" if r["holds"] else "no", r["detail"]]
            lines.append(cells)
    if machines:
        head = ["script", "what", "measured", "spread, runs", "limit", "holds", "setting"]
        yield table(head, lines)
        yield "\n".join(f"- {', '.join(names)}: {machine}" for machine, names in machines.items())


def _machine(run: Row) -> str:
    where = run["gpu"] or f"{run['cpu']} CPU, {run['threads']} of {run['cores']} cores"
    return (
        f"{where}; rood {run['rood']}, torch {run['torch']}, Python {run['python']}, {run['date']}"
    )


def _memory(points: Sequence[Row]) -> Iterator[str]:
    sizes = sorted({p["images"] for p in points})
    found = {(p["library"], p["detector"], p["images"]): p for p in points}
    pairs = list(dict.fromkeys((d, lib) for lib, d, _ in found))
    cell = lambda p: f"{p['megabytes']:,.0f} MB, {p['seconds']:.1f} s" if p else "-"
    lines = [
        [f"`{detector}`", library, *(cell(found.get((library, detector, n))) for n in sizes)]
        for detector, library in pairs
    ]
    yield table(["detector", "library", *(f"{n:,}" for n in sizes)], lines)


def _growth(rows: Sequence[Row]) -> Iterator[str]:
    for row in (r for r in rows if r.get("points")):
        points = row["points"]
        axis = next(k for k in points[0] if len({p[k] for p in points}) > 1)
        shown = [axis, "cpu_seconds", "forwards", "backwards"]
        yield _table([{k: p[k] for k in shown} for p in points])


def _table(points: Sequence[Row]) -> str:
    names = list(points[0])
    lines = [[_cell(p[n]) for n in names] for p in points]
    return table([n.replace("_", " ") for n in names], lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
