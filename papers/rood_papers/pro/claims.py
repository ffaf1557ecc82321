"""PRO's claims, tested on our cells."""

from collections.abc import Iterator, Mapping, Sequence

from rood.metrics import Interval
from rood_papers.framework.cells import Cell, interval, ours
from rood_papers.framework.claims import NOISE, UNDECIDED, claim, compared, ordered
from rood_papers.framework.intervals import NOTHING, difference
from rood_papers.framework.paper import read
from rood_papers.pro.bench import LEAST, PLAIN
from rood_papers.pro.figures import LEAD, TOP
from rood_papers.pro.tables import GAIN

TEXT = read("pro")["claims"]
LEFT = 0.05  # of an AUROC under attack: below it nothing is left
NETS = ("default", "robust")


def table1(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """PRO gains, most on the robust network; ODIN hurts."""
    for pro in ("PRO-MSP", "PRO-GEN"):
        for net in NETS:
            yield _gains(name, cells, pro, net)
            facts = {"column": f"{net} / near", "metric": "fpr95_out"}
            pair = {m: interval(cells, row=m, **facts) for m in (PLAIN[pro], pro)}
            text = TEXT["lower_fpr"].format(pro=pro, base=PLAIN[pro], net=net)
            yield ordered(name, text, pair)
    for group in ("near", "mean"):
        text = TEXT["more_on_robust"].format(group=group)
        yield _gains_more(name, text, cells, "PRO-GEN", "robust", group)
    for net in NETS:
        odin = _gain(cells, "ODIN", net, "near")
        loss = None if odin is None else difference(NOTHING, odin)
        yield _above_zero(name, TEXT["odin_hurts"].format(net=net), {"loss": loss})


def table2(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """PRO gains wherever the paper's does."""
    printed = [c for c in cells if c.metric == GAIN and c.paper is not None and c.paper > 0]
    for c in printed:
        if c.row in PLAIN and c.column.endswith("/ near"):
            yield _gains(name, cells, c.row, c.column.partition(" / ")[0])


def figure4(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Gains by network; not on ALOE's, which was trained with near OOD images."""
    for net, whose in (("robust", ""), ("ADV", "ours: ")):
        for pro in PLAIN:
            if (pro, net) == ("PRO-MSP", "robust"):
                continue  # the paper's own gains: 0.4 there, 1.1 on the default network
            text = TEXT["gains_more"].format(whose=whose, pro=pro, net=net)
            yield _gains_more(name, text, cells, pro, net, "near")


def sweep(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """The best iterate against the last."""
    for row in _rows(cells):
        lead = interval(cells, row=row, metric=LEAD)
        yield _above_zero(name, TEXT["best_iterate"].format(row=row), {"lead": lead})
        best = ours(cells, row=row, column=TOP["best"])
        none = next((c.ours for c in cells if (c.row, c.x) == (row, 0)), None)
        yield compared(
            name,
            TEXT["best_step"].format(row=row),
            {"best": best, "none": none},
            lambda best, none: best > none,
        )


def figure6(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Energy is rougher than MSP."""
    for net in NETS:
        for side in ("inside", "near"):
            found = {
                score: interval(cells, row=f"{score}, {net}", column=side, metric="roughness")
                for score in ("EBO", "MSP")
            }
            yield ordered(name, TEXT["rougher"].format(side=side, net=net), found, least=0.0)


def figure7(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """More classes, more shift."""
    rows = {n: f"{n}, default" for n in ("cifar100", "cifar10")}
    found = {n: interval(cells, row=row, column="inside") for n, row in rows.items()}
    yield ordered(name, TEXT["more_classes"], found, least=0.0)


def figure3(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Scores of OOD images move more than those of ID images."""
    for row in _rows(cells):
        whose = "" if row.endswith(", robust") else "ours: "
        found = {side: interval(cells, row=row, column=side) for side in ("near", "inside")}
        text = TEXT["shifts_further"].format(whose=whose, row=row)
        yield ordered(name, text, found, least=0.0)


def adaptive(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """PRO's gain under attack; not tested where both AUROCs are close to 0."""
    for net in dict.fromkeys(c.column for c in cells if c.kind == "cell"):
        facts = {"column": net, "attack": "standard"}
        text = TEXT["stays_above"].format(net=net)
        pair = [interval(cells, row=r, metric="auroc", **facts) for r in ("PRO-ENT", "Entropy")]
        if all(i is not None and i.value < LEFT for i in pair):
            shown = ", ".join(f"{i.value:.4f}" for i in pair if i is not None)
            yield claim(name, text, None, TEXT["nothing_left"].format(shown=shown))
        else:
            gain = interval(cells, row="PRO-ENT", metric=GAIN, **facts)
            yield _above_zero(name, text, {"gain": gain})


def _rows(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(c.row for c in cells if c.kind == "cell"))


def _gain(cells: Sequence[Cell], row: str, net: str, group: str) -> Interval | None:
    return interval(cells, row=row, column=f"{net} / {group}", metric=GAIN)


def _gains(name: str, cells: Sequence[Cell], pro: str, net: str) -> Cell:
    text = TEXT["above"].format(pro=pro, base=PLAIN[pro], net=net)
    return _above_zero(name, text, {"gain": _gain(cells, pro, net, "near")}, _idle(cells, pro, net))


def _gains_more(
    name: str, text: str, cells: Sequence[Cell], pro: str, net: str, group: str
) -> Cell:
    own, default = (_gain(cells, pro, n, group) for n in (net, "default"))
    more = None if own is None or default is None else difference(own, default)
    gains = {net: own, f"{net} less default": more}
    return _above_zero(name, text, gains, _idle(cells, pro, net))


def _idle(cells: Sequence[Cell], pro: str, net: str) -> str:
    """A remark where validation chose the smallest step, so that PRO does next to nothing."""
    notes = (c.note for c in cells if c.row == pro and c.column.startswith(f"{net} / "))
    return TEXT["least_step"] if any(LEAST in note for note in notes) else ""


def _above_zero(
    name: str, text: str, gains: Mapping[str, Interval | None], remark: str = ""
) -> Cell:
    """It holds where every interval lies above 0, and not where one ends below `NOISE`."""
    shown = ", ".join(
        f"{n} ?" if g is None else f"{n} {g.value:.4f} ({g.low:.4f} to {g.high:.4f})"
        for n, g in gains.items()
    )
    known = [g for g in gains.values() if g is not None]
    holds: float | None = UNDECIDED
    if len(known) < len(gains):
        holds = None
    elif any(g.high < NOISE for g in known):
        holds = 0.0
    elif all(g.low > 0 for g in known):
        holds = 1.0
    return claim(name, text, holds, f"{shown}{remark}")
