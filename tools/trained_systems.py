"""The tables of docs/evidence/trained-systems.md, from papers/results/liang.jsonl."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rood_papers.framework.cells import Cell, read_rows
from tools.markdown import table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence" / "trained-systems.md"
ROWS = ROOT / "papers" / "results" / "liang.jsonl"
Values = dict[tuple[str, str], Cell]  # by attack and metric


def page() -> str:
    """The page with its tables filled in between their markers."""
    text, rows = PAGE.read_text(), read_rows(ROWS)
    for name, lines_of in TABLES.items():
        mine = [r for r in rows if r.experiment == f"liang/{name}" and r.kind == "cell"]
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, rest = text.split(start)
        head, *lines = lines_of(mine)
        text = f"{before}{start}\n{table(head, lines)}\n{end}{rest.split(end)[1]}"
    return text


def _lines(rows: list[Cell]) -> dict[tuple[str, str], Values]:
    """The numbers of each row and column."""
    found: dict[tuple[str, str], Values] = {}
    for r in rows:
        found.setdefault((r.row, r.column), {})[r.attack, r.metric] = r
    return found


def systems(rows: list[Cell]) -> Iterator[Sequence[str]]:
    """Each system from each start."""
    names = ("clean", "matched", "paper", "direct", "no limit", "MAPE, median", "loss flat")
    yield ("score", "network, start, code, ball", *names, "finding", "n")
    for (row, column), of in sorted(_lines(rows).items(), key=lambda line: line[0][0]):
        auroc = {a: _number(of[a, m].ours) for a, m in of if m == "auroc"}
        matched, fall = of["matched", "auroc"], of["matched", "last_fall"].ours or 0.0
        direct = of.get(("direct", "auroc"), Cell("", "", "", ""))
        word, _, match = direct.note.partition(", ")
        bound = f" {auroc['certified']}" if word == "proven" else ""
        yield [
            row.replace("|", r"\|"), column, auroc["clean"], auroc["matched"],
            _number(matched.paper), auroc.get("direct", ""), auroc.get("unlimited", ""),
            _percent(of["matched", "mape_median"].ours or 0.0),
            "yes" if fall <= 0.01 else f"no, {fall:.1%}",
            f"**{word}**{bound}, {match}" if word else "", str(matched.n_in),
        ]  # fmt: skip


def other_images(rows: list[Cell]) -> Iterator[Sequence[str]]:
    """Scores of other images."""
    yield ("score", "network", "AUROC", "scores", "n")
    for r in rows:
        yield (r.row, r.column, _number(r.ours), r.note, f"{r.n_in} / {r.n_out}")


def round_trip(rows: list[Cell]) -> Iterator[Sequence[str]]:
    """How exactly a flow reconstructs images."""
    metrics = list(dict.fromkeys(r.metric for r in rows))
    yield ("network", "precision", *(m.replace("_per_dim", "/dim") for m in metrics), "n")
    for (row, column), of in _lines(rows).items():
        values = [f"{of['clean', m].ours:.3g}" for m in metrics]
        yield (row, column, *values, str(of["clean", metrics[0]].n_in))


def certificate(rows: list[Cell]) -> Iterator[Sequence[str]]:
    """What attacks find beside what is proven."""
    yield ("network, OOD images, radius", "clean", "attacked", "certified", "beyond", "n")
    for (_, column), of in _lines(rows).items():
        values = [_number(of[a, "auroc"].ours) for a in ("clean", "direct", "certified")]
        beyond = of["direct", "images beyond the certificate"]
        yield (column, *values, f"{beyond.ours:g}", str(beyond.n_out))


def _percent(value: float) -> str:
    return f"{value:.2%}" if value < 10 else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


TABLES = {f.__name__: f for f in (systems, other_images, round_trip, certificate)}
