"""The outcome of an audit as a short table in Markdown, for the summary of a CI job."""

from collections.abc import Sequence

from rood.evaluation.gate import Missing, failure, worst_of_each
from rood.evaluation.rows import Row
from rood.report.words import shown


def summary(rows: Sequence[Row], bar: float | None = None, missing: Sequence[Missing] = ()) -> str:
    """The lowest AUROC with both sides attacked of every network and detector."""
    lines = ["## rood audit", "", "| | network | detector | AUROC | on | verdict |"]
    lines.append("|---|---|---|---|---|---|")
    for worst in worst_of_each(rows, bar):
        interval = "" if worst.low is None else f" ({worst.low:.3f} to {worst.high:.3f})"
        cells = ["❌" if failure(worst, bar) else "✅", _cell(worst.model), _cell(worst.detector)]
        where = _cell(f"{worst.dataset}, {worst.scenario}")
        cells += [f"{worst.value:.3f}{interval}", where, worst.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    for pair in missing:
        lines.append(f"| ❌ | {_cell(pair.model)} | {_cell(pair.detector)} | not attacked | | |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """A name that is neither markup nor the end of a cell."""
    return "".join(f"&#{ord(c)};" if c in "|<>&`*_[]\\" else c for c in shown(text))
