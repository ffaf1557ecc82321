"""The outcome of an audit as a short table in Markdown, for the summary of a CI job."""

from collections.abc import Sequence

from rood.evaluation.rows import Row
from rood.report.junit import failure
from rood.report.words import shown


def summary(rows: Sequence[Row], bar: float | None = None) -> str:
    """The lowest AUROC with both sides attacked of every network and detector."""
    attacked = [r for r in rows if r.metric == "auroc" and r.side == "both"]
    lines = ["## rood audit", "", "| | network | detector | AUROC | on | verdict |"]
    lines.append("|---|---|---|---|---|---|")
    for pair in dict.fromkeys((r.model, r.detector) for r in attacked):
        mine = [r for r in attacked if (r.model, r.detector) == pair]
        # one that does not pass goes before one that does
        worst = min(mine, key=lambda r: (not failure(r, bar), r.value))
        interval = "" if worst.low is None else f" ({worst.low:.3f} to {worst.high:.3f})"
        cells = ["❌" if failure(worst, bar) else "✅", *map(_cell, pair)]
        where = _cell(f"{worst.dataset}, {worst.scenario}")
        cells += [f"{worst.value:.3f}{interval}", where, worst.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """A name that is neither markup nor the end of a cell."""
    return "".join(f"&#{ord(c)};" if c in "|<>&`*_[]\\" else c for c in shown(text))
