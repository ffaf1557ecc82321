"""docs/images/sandwich.png: AUROC of one detector, clean, attacked and certified, at three budgets.

python -m tools.sandwich draws docs/results/sandwich.jsonl; with a folder, it measures there first.
"""

import sys
from pathlib import Path

import rood
from rood.evaluation.rows import Row
from rood.evaluation.store import read_lines

DOCS = Path(__file__).resolve().parent.parent / "docs"
ROWS = DOCS / "results" / "sandwich.jsonl"
OUT = DOCS / "images" / "sandwich.png"
BUDGETS = (0.02, 0.05, 0.1)
KEPT = ("auroc", "certified_auroc")
MARKS = (("clean", "o", "#1f6feb"), ("attacked", "D", "#cf222e"), ("certified", "|", "#24292f"))


def main(folder: Path | None = None) -> None:
    """Measure where a folder is given, and draw."""
    if folder is not None:
        measure(folder)
    draw(list(read_lines(ROWS, Row)))


def measure(folder: Path) -> None:
    """Attack and certify MSP on a network of the demo, both sides, 40 images each."""
    found = rood.audit(
        "digits-aloe",
        ["msp"],
        inside="digits:inside",
        outside={"near": "digits:near"},
        threats=[f"linf:{eps}" for eps in BUDGETS],
        limit=40,
        certify=True,
        out=folder,
    )
    ROWS.write_text("".join(row.line() for row in found.rows if row.metric in KEPT))


def layers(rows: list[Row]) -> list[tuple[float, Row, Row, Row]]:
    """For each budget: eps, then the clean, the attacked and the certified row, both sides."""
    (clean,) = (r for r in rows if r.side == "none")
    found = []
    for eps in BUDGETS:
        here = {r.metric: r for r in rows if r.side == "both" and r.scenario.endswith(f":{eps}")}
        found.append((eps, clean, here["auroc"], here["certified_auroc"]))
    return found


def draw(rows: list[Row]) -> None:
    """A bar for each budget: thin between attacked and certified, where the truth lies."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 2.2))
    lines = layers(rows)[::-1]
    for y, (_, clean, attacked, certified) in enumerate(lines):
        axis.plot([attacked.value, clean.value], [y, y], color="#b9c4cf", lw=7, zorder=1)
        axis.plot([certified.value, attacked.value], [y, y], color="#b9c4cf", lw=1.5, zorder=1)
        for at, row in enumerate((clean, attacked, certified)):
            _, mark, colour = MARKS[at]
            axis.plot(row.value, y, mark, color=colour, ms=15 if mark == "|" else 8, mew=2.5)
            axis.text(1.06 + 0.11 * at, y, f"{row.value:.3f}", color=colour, va="center")
    for at, (name, _, colour) in enumerate(MARKS):
        axis.text(1.06 + 0.11 * at, len(lines) - 0.35, name, color=colour, fontsize=8)
    axis.set(yticks=range(len(lines)), yticklabels=[f"eps {eps:g}" for eps, *_ in lines])
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.5, len(lines) - 0.4), xlabel="AUROC, both sides")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(OUT, dpi=160, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
