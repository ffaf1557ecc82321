"""The claims of Liang et al. about their tables and figures, tested on our rows."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rood_papers.framework.cells import Cell, interval
from rood_papers.framework.claims import NOISE, TELLS, UNDECIDED, claim, compared, decided, noise_of

HALF = 0.05  # around 1/2: what counts as matched
PRINTED = 0.005  # around 1/2: where the paper says so
NEAR = 0.1  # around what the paper prints, where that is not 1/2
FOUND = 0.01  # error of a code that counts as found
LOSS = 0.05  # of an AUROC: what counts as unmoved
MOST = "mape_below_0.001"  # the share of codes that the paper calls equal
CUT = re.compile(r"(\d+) steps, the paper (\d+)")  # in a note


def tables(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """AUROC 1/2 after matching, flat losses, and the effect of a direct attack."""
    before = _before(rows)
    tells = lambda r: (before.get(r.part) or 0.0) >= TELLS
    official = [r for r in rows if r.attack == "official" and r.kind == "cell"]
    ends = [r for r in official if r.metric == "auroc" and r.paper is not None and tells(r)]
    halves = [r for r in ends if _near(r.paper, 0.5, PRINTED)]
    matched = lambda r: lambda v: abs(v - 0.5) <= HALF
    yield _all(experiment, "where the paper is at 0.50, matching ends there", halves, matched)
    if others := [r for r in ends if r not in halves]:
        text = f"where the paper is elsewhere, matching ends within {NEAR:g} of it"
        yield _all(experiment, text, others, lambda r: lambda v: _near(v, r.paper, NEAR))
    yield from _settled(experiment, rows)


def codes_are_found(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """The paper's claim about codes, of the median image."""
    steps = {r.part: r.note for r in rows if r.attack == "official" and r.metric == "auroc"}
    found = (r for r in rows if r.metric == "mape_median")
    errors = [replace(r, note=steps.get(r.part, r.note)) for r in found]
    text = "the median code ends within 0.1 % of that asked for"
    yield _all(experiment, text, errors, lambda r: lambda v: v < 1e-3, noise=0.0)
    yield from _settled(experiment, rows)


def _settled(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Whether more steps would have helped, and what the score itself withstands."""
    official = [r for r in rows if r.attack == "official" and r.kind == "cell"]
    falls = [r for r in official if r.metric == "last_fall" and r.ours != 0]  # 0: it never moved
    text = "ours: in its last fifth the loss falls by less than 1 % of its first value"
    yield _all(experiment, text, falls, lambda r: lambda v: v < 0.01, noise=0.0)
    before = _before(rows)
    begun = lambda r: (before.get(r.part) or 0.0) >= TELLS and "no slope at 100%" not in r.note
    own = [r for r in rows if r.attack == "standard" and begun(r)]
    text = "ours: an attack on the score itself goes below one half"
    yield _all(experiment, text, own, lambda r: lambda v: v < 0.5 - HALF)


def _before(rows: Sequence[Cell]) -> dict[str, float | None]:
    """The AUROC of every part without an attack."""
    return {r.part: r.ours for r in rows if r.metric == "auroc" and r.attack == "clean"}


def _all(
    experiment: str,
    text: str,
    rows: Sequence[Cell],
    holds: Callable[[Cell], Callable[[float], bool]],
    noise: float = NOISE,
) -> Cell:
    """Whether it holds of every row; by how many, and over which numbers."""
    known = [(r, r.ours) for r in rows if r.ours is not None]
    outcomes = [(r, decided(holds(r), [v], noise)) for r, v in known]
    missed = [r for r, outcome in outcomes if outcome == 0.0]
    at_border = sum(outcome == UNDECIDED for _, outcome in outcomes)
    values = [v for _, v in known]
    span = f", {min(values):.3f} to {max(values):.3f}" if values else ""
    shown = f"{len(known) - len(missed) - at_border} of {len(known)}{span}"
    if not known:
        return claim(experiment, text, None, shown)
    if not all(map(_open, missed)):
        return claim(experiment, text, 0.0, shown)
    why = ((len(missed), "cut short"), (at_border, "at the border"))
    shown += "".join(f"; {n} {what}" for n, what in why if n)
    return claim(experiment, text, UNDECIDED if missed or at_border else 1.0, shown)


def _open(row: Cell) -> bool:
    """Whether fewer steps were made than in the paper, so that more might have done it."""
    found = CUT.search(row.note)
    return found is not None and int(found[1]) < int(found[2])


def _near(value: float | None, other: float | None, width: float) -> bool:
    return value is not None and other is not None and abs(value - other) <= width


def unmoved(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """No image is hidden; not tested by a match that did not find the code."""
    of = {r.attack: r.ours for r in rows if r.metric == "auroc" and r.ours is not None}
    error = interval(rows, metric="mape_median")
    shown = ", ".join(f"{attack} {value:.3f}" for attack, value in of.items())
    shown += "" if error is None else f"; error of the code {error.value:.1%}"
    if error is None or error.value > FOUND:
        of.pop("official", None)
    for attack, text in (
        ("official", "matching a code hides no image"),
        ("standard", "an attack on the score itself hides no image"),
    ):
        known = "clean" in of and attack in of
        yield claim(experiment, text, of[attack] > of["clean"] - LOSS if known else None, shown)


def most_are_met(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """The paper: an attack can reach any likelihood."""
    share = interval(rows, metric="met")
    text = "most likelihoods that are asked for are met within 1 %"
    value = {"met": None if share is None else share.value}
    noise = noise_of([] if share is None else [share])
    yield compared(experiment, text, value, lambda v: v > 0.5, noise)


def most_are_close(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """The paper's claim about its histograms."""
    of = {r.column: r.ours for r in rows if r.metric == MOST}
    text = "most codes end within 0.1 % of those asked for"
    yield compared(experiment, text, of, lambda *shares: all(v > 0.5 for v in shares))


def closest(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Which rule of the attack comes closest to the code."""
    of = {r.attack: r.ours for r in rows if r.metric == "mape_median" and r.ours is not None}
    shown = ", ".join(f"{a} {v:.2g}" for a, v in of.items())
    best = None if "shrinking" not in of or len(of) < 3 else min(of, key=lambda a: of[a])
    text = "steps that shrink end closest to the code"
    yield claim(experiment, text, None if best is None else best == "shrinking", shown)


def systems(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Ours: the effect of the attack on the score itself, and the certificate."""
    before = {(r.row, r.column): r.ours for r in rows if r.attack == "clean"}
    tells = lambda r: (before.get((r.row, r.column)) or 0.0) >= TELLS
    own = [r for r in rows if r.attack == "direct" and r.metric == "auroc" and tells(r)]
    text = "ours: an attack on the score itself within the ball goes below one half"
    yield _all(experiment, text, own, lambda r: lambda v: v < 0.5)
    yield from certificate(experiment, rows)


def certificate(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Ours: no attack passes a certificate."""
    shares = [r for r in rows if r.metric == "auroc"]
    proven = {(r.row, r.column): r.ours for r in shares if r.attack == "certified"}
    own = [r for r in shares if r.attack in ("direct", "matched") and (r.row, r.column) in proven]
    above = lambda r: lambda v: v >= (proven[r.row, r.column] or 0.0)
    yield _all(experiment, "ours: no attack goes below the certificate", own, above, noise=0.0)
