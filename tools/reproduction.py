"""docs/evidence/papers/*.md: what became of each paper's claims, from the rows that `rood reproduce` wrote.

    python -m tools.reproduction --page reproduction.html     every cell and figure, as one HTML page

The rows are in papers/results/*.jsonl, one file per paper: rows.jsonl of each run, joined.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rood_papers import experiments
from rood_papers.framework.cells import Cell, read_rows
from rood_papers.framework.page import About, Claim, Section, sections, shrinking, write_page
from rood_papers.framework.paper import read
from tools.markdown import table, texts

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "papers" / "results"
TEXT = texts("reproduction")
PAPERS = TEXT["papers"]  # titles
PICTURES = {"liang/galleries"}  # pictures of other people's images, which are not ours to publish
OUTCOMES = ("holds", "does not hold", "undecided", "not tested")
NOT_RUN = {paper: read(paper)["not_run"] for paper in PAPERS}
METRICS = {"auroc": "AUROC", "mape_median": "median error of the code"}  # of stand-ins, in per cent
COLUMNS = ("printed", "clean", "by_paper", "official", "standard")


def rows() -> list[Cell]:
    """Every row of every paper."""
    return [r for path in sorted(RESULTS.glob("*.jsonl")) for r in read_rows(path)]


def about() -> dict[str, About]:
    """What the experiments say of themselves."""
    return {e.name: About(e.what, e.why) for e in experiments().values()}


def pages() -> Iterator[tuple[str, str]]:
    """Every page, by file name."""
    every = rows()
    found = sections(every, about())
    yield "index.md", TEXT["index"].format(tally=_tally(found), missing=_missing(found))
    for paper in PAPERS:
        mine = [s for s in found if _of(s.name) == paper]
        parts = [
            f"# {PAPERS[paper]}",
            _summary(mine),
            *_claims(mine),
            *_stronger(every, paper),
            *_not_run(every, NOT_RUN.get(paper, [])),
            *_why(mine),
        ]
        data = f"All cells: [papers/results/{paper}.jsonl](../../../papers/results/{paper}.jsonl)."
        yield f"{paper}.md", "\n\n".join([*parts, data]) + "\n"


def _of(experiment: str) -> str:
    return experiment.partition("/")[0]


def _counts(found: list[Section]) -> list[int]:
    outcomes = Counter(c.outcome for s in found for c in s.claims)
    return [outcomes[o] for o in OUTCOMES]


def _tally(found: list[Section]) -> str:
    lines = [
        (f"[{paper}]({paper}.md)", len(mine), *_counts(mine))
        for paper in PAPERS
        if (mine := [s for s in found if _of(s.name) == paper])
    ]
    return _table(("paper", "experiments", *OUTCOMES), lines)


def _missing(found: list[Section]) -> str:
    there = {s.name for s in found}
    names = [n for n in about() if n not in there | PICTURES]
    text = (
        f"\n**Not measured yet** ({len(names)} of {len(about())}): {', '.join(names)}.\n"
        if names
        else ""
    )
    hidden = sorted(PICTURES - there)
    return text + (
        f"\n**Not shown**: {', '.join(hidden)}, pictures of other people's images.\n"
        if hidden
        else ""
    )


def _summary(found: list[Section]) -> str:
    counts = zip(_counts(found), OUTCOMES, strict=True)
    said = ", ".join(f"{n} {outcome}" for n, outcome in counts)
    return (
        f"{len(found)} experiments; claims: {said}. How to read an outcome: [the index](index.md)."
    )


def _claims(found: list[Section]) -> Iterator[str]:
    """One row per claim; those that were not tested for one reason share a line."""
    lines = [
        (s.name, c.text, c.outcome, c.numbers) for s in found for c in s.claims if not _idle(c)
    ]
    yield "## Claims"
    yield _table(("experiment", "claim", "here", "numbers"), lines)
    idle = Counter(s.name for s in found for c in s.claims if _idle(c))
    if idle:
        which = ", ".join(f"{name} ({n})" for name, n in idle.items())
        yield f"Not tested, because the unattacked detector is below 0.75 and has nothing to lose: {which}."


def _idle(claim: Claim) -> bool:
    return claim.outcome == "not tested" and "nothing to lose" in claim.numbers


def _stronger(every: list[Cell], paper: str) -> Iterator[str]:
    lines = [
        (x.row, x.column, *(getattr(x, c) for c in COLUMNS))
        for x in shrinking(every)
        if x.paper == paper and " / " not in x.column
    ]
    if lines:
        yield TEXT["stronger"].format(
            sides="OOD images" if paper in ("fort", "liang") else "ID and OOD images"
        )
        yield _table(("row", "column", "printed", "clean", "paper", "official", "standard"), lines)


def _not_run(every: list[Cell], gaps: list[dict[str, str]]) -> Iterator[str]:
    """What a paper ran and we could not, and the numbers of what was run in its place."""
    if not gaps:
        return
    yield TEXT["not_run"]
    for gap in gaps:
        where = f" (`{gap['stand_in']}`)" if "stand_in" in gap else ""
        instead = f"*Instead:* {gap['instead']}{where}."
        yield f"**{gap['what']}.** *Missing:* {gap['missing']}. {instead}"
    for name in dict.fromkeys(g["stand_in"] for g in gaps if "stand_in" in g):
        numbers: list[tuple[object, ...]] = [
            (r.row, r.column, METRICS[r.metric], r.attack, _interval(r), f"{r.n_in} / {r.n_out}")
            for r in every
            if (r.experiment, r.kind) == (name, "cell")
            and r.metric in METRICS
            and r.ours is not None
        ]
        yield f"Numbers of `{name}`, in per cent, with 95 % intervals:"
        yield _table(("row", "column", "metric", "attack", "here", "ID / OOD images"), numbers)


def _interval(cell: Cell) -> str:
    value, *ends = (None if v is None else 100 * v for v in (cell.ours, cell.low, cell.high))
    inside = "" if None in ends else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
    return f"{value:.2f}{inside}"


def _why(found: list[Section]) -> Iterator[str]:
    """Why numbers differ, each reason once, with the experiments it holds for."""
    reasons: dict[str, list[str]] = {}
    for s in found:
        if s.about.why:
            reasons.setdefault(s.about.why, []).append(s.name)
    if reasons:
        yield "## Why numbers may differ"
        yield "\n".join(f"- {', '.join(names)}: {why}." for why, names in reasons.items())


def _table(head: tuple[str, ...], lines: list[tuple[object, ...]]) -> str:
    return table(head, ([str(c).replace("|", r"\|") for c in line] for line in lines))


def main() -> None:
    """The HTML page; `make generate` writes the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, required=True)
    print(write_page(rows(), about(), parser.parse_args().page))


if __name__ == "__main__":
    main()
