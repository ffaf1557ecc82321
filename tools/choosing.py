"""docs/how-to/choose-detector.md: which detector, by a stated rule on what was measured."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import rood
from benchmarks.choosing import make
from benchmarks.choosing import parts as parts_of
from rood.detectors import registry
from tools.detectors import known
from tools.markdown import RESULTS, Row, percent, read, table, texts
from tools.zoo import SCORES, Measured

TEXT = texts("choosing")
FILE = RESULTS / "choosing.jsonl"
EXPORTS = Path(__file__).parent.parent / "docs" / "how-to" / "guard.md"
CLASSIFIER, HARDENED, PLAIN = "cifar10-ce", "gtsrb-aloe", "gtsrb-ce"
ON_CIFAR = {"cifar10-aloe": "1/255", "cifar10-aloe-8": "8/255"}
CLOSE = 0.01  # AUROC, or share of false alarms, within which two detectors count as equal
GOOD = 0.03  # of the best mean of near and far AUROC: what still counts as a good detector
SHOWN = 4  # detectors named beside the one to take
ENOUGH = 0.5  # of the detectors: a number that fewer have decides nothing


class Attacked(NamedTuple):
    """AUROC with both sides attacked."""

    value: float
    low: float
    high: float
    verdict: str


class Line(NamedTuple):
    """What was measured of one detector; None: nothing."""

    name: str
    near: float | None = None
    far: float | None = None
    alarms: float | None = None  # on clean ID images
    corrupted: float | None = None  # mean over the corruptions
    hardened: Attacked | None = None
    plain: Attacked | None = None
    passes: float | None = None
    kilobytes: int | None = None
    labels: bool | None = None
    fits: bool | None = None
    onnx: bool = False

    @property
    def clean(self) -> float | None:
        """Mean of near and far."""
        return None if self.near is None or self.far is None else (self.near + self.far) / 2

    @property
    def cost(self) -> float:
        """Whole passes: what is closer is equal, as times on a busy machine are not exact."""
        return float("inf") if self.passes is None else max(1, round(self.passes))


Value = Callable[[Line], float | None]
Lines = Sequence[Line]


def page() -> str:
    """The whole page."""
    rows = read(FILE)
    found = lines(rows, CLASSIFIER)
    made = {r["detector"] for r in rows if (r["part"], r["network"]) == ("clean", CLASSIFIER)}
    if len(made) < ENOUGH * len(found):  # until then by those of the page on detectors
        found = elsewhere(found)
    head, cells = classifiers(found)
    said = {k: v for k, v in TEXT["columns"].items() if k in head and v}
    if len(made) < ENOUGH * len(found):
        said["near"] = TEXT["elsewhere"]
    told = conditions(rows, found)
    return (
        TEXT["page"]
        .lstrip()
        .format(
            take=take(found),
            measured=table(head, cells),
            columns="\n".join(f"- {text.strip()}" for text in said.values()).format(**told),
            own=own(rows),
            hardened=hardened(),
            close=f"{100 * CLOSE:g}",
            good=f"{100 * GOOD:g}",
            **told,
        )
    )


def lines(rows: Iterable[Row], network: str) -> list[Line]:
    """Every detector with a row on this network, best mean of near and far first."""
    parts = {(r["part"], r["network"], r["detector"]): r for r in rows}
    names = dict.fromkeys(d for p, n, d in parts if n == network and p in ("clean", "cost"))
    on = (HARDENED, PLAIN) if network == CLASSIFIER else (network, "")
    exports = exportable()
    model = rood.zoo.load("digits-ce") if network == CLASSIFIER else None  # any classifier

    def line(name: str) -> Line:
        clean, cost = (parts.get((p, network, name), {}) for p in ("clean", "cost"))
        return Line(
            name,
            near=_mean(clean.get("near")),
            far=_mean(clean.get("far")),
            alarms=clean.get("false_alarms"),
            corrupted=_mean(clean.get("corrupted")),
            hardened=_attacked(parts.get(("attacked", on[0], name))),
            plain=_attacked(parts.get(("attacked", on[1], name))),
            passes=cost.get("passes"),
            kilobytes=clean.get("kilobytes"),
            labels=any(m.needs_labels for m in parts_of(make(name, model))) if model else None,
            fits=any(m.fitted_names for m in parts_of(make(name, model))) if model else None,
            onnx=name in exports,
        )

    return sorted(map(line, names), key=lambda x: (-(x.clean or 0), x.name))


def elsewhere(found: Lines) -> list[Line]:
    """The same with near and far AUROC of the networks of docs/evidence/detectors.md."""
    clean = known()
    moved = [
        x._replace(near=clean[x.name].near / 100, far=clean[x.name].far / 100)
        if x.name in clean
        else x._replace(near=None, far=None)
        for x in found
    ]
    return sorted(moved, key=lambda x: (-(x.clean or 0), x.name))


def _mean(values: dict[str, float] | None) -> float | None:
    return fmean(values.values()) if values else None


def _attacked(row: Row | None) -> Attacked | None:
    return None if row is None else Attacked(row["both"], row["low"], row["high"], row["verdict"])


def exportable() -> set[str]:
    """The detectors that export to ONNX, by the table that a test compares with the code."""
    found = re.findall(r"^\| `(\w+)` \| yes \|", EXPORTS.read_text(encoding="utf-8"), re.MULTILINE)
    return set(found)


class Choice(NamedTuple):
    """The detector to take, and those that the rule counts as equal."""

    first: Line
    others: list[Line]


def choose(found: Lines, value: Value, keep: Callable[[Line], bool] = bool) -> Choice | None:
    """The cheapest of those whose value is within `CLOSE` of the highest; then the highest."""
    able = [line for line in found if keep(line)]
    valued = [(v, line) for line in able if (v := value(line)) is not None]
    if not valued or len(valued) < ENOUGH * len(able):
        return None
    best = max(v for v, _ in valued)
    equal = sorted((x.cost, -v, x.name, x) for v, x in valued if v >= best - CLOSE)
    first, *others = (x for *_, x in equal)
    return Choice(first, others)


def choose_attacked(found: Lines) -> Choice | None:
    """Of those whose interval reaches the highest attacked AUROC: the best clean, then cheapest.

    A number whose attack failed its checks does not count.
    """
    believed = [x for x in found if x.hardened and x.hardened.verdict != "fail"]
    if not believed or len(believed) < ENOUGH * len(found):
        return None
    best = max(x.hardened.value for x in believed if x.hardened)
    equal = [x for x in believed if x.hardened and x.hardened.high >= best]
    first, *others = sorted(equal, key=lambda x: (-(x.clean or 0), x.cost, x.name))
    return Choice(first, others)


def choose_hardened(found: Lines) -> Choice | None:
    """By the scores measured on the hardened network of CIFAR-10."""
    network, eps = next(iter(ON_CIFAR.items()))
    measured = Measured()
    values = {n: measured.mean(network, "auroc", "standard", eps, n) for n in SCORES}
    scored = [x for x in found if values.get(x.name) is not None]
    return choose(scored, lambda x: _value(values[x.name]))


def _value(number: object) -> float | None:
    """Of an interval, or of a number alone."""
    found = getattr(number, "value", number)
    return found if isinstance(found, float) else None


def good(found: Lines) -> list[Line]:
    """Those whose mean of near and far is close to the best."""
    best = max((x.clean for x in found if x.clean is not None), default=0.0)
    return [x for x in found if x.clean is not None and x.clean >= best - GOOD]


def _near(line: Line) -> float | None:
    return line.near


def _far(line: Line) -> float | None:
    return line.far


def _clean(line: Line) -> float | None:
    return line.clean


def take(found: Lines) -> str:
    """The recommendation: a line for each case, as the rule gives it."""
    quiet = choose(good(found), lambda x: None if x.corrupted is None else -x.corrupted)
    chosen = {
        "attacked": choose_attacked(found) or choose_hardened(found),
        "near": choose(found, _near),
        "far": choose(found, _far),
        "both": choose(found, _clean),
        "corrupted": quiet,
        "no_training": choose(found, _clean, lambda x: x.fits is False),
        "no_labels": choose(found, _clean, lambda x: x.labels is False),
        "one_pass": choose(found, _clean, lambda x: x.cost == 1),
        "onnx": choose(found, _clean, lambda x: x.onnx),
    }
    cells = [
        [TEXT["cases"][case], _link(choice.first), _why(case, choice), _others(choice)]
        for case, choice in chosen.items()
        if choice is not None
    ]
    return table(["your case", "take", "measured", "counts as equal"], cells)


def _why(case: str, choice: Choice) -> str:
    """The number that decided."""
    x = choice.first
    if case == "attacked":
        return f"{_interval(x.hardened)} attacked" if x.hardened else TEXT["on_cifar"]
    if case == "corrupted":
        return f"{_tenth(x.corrupted)} % false alarms"
    values = {"near": [("near", x.near)], "far": [("far", x.far)]}
    return ", ".join(
        f"{_tenth(v)} {w}" for w, v in values.get(case, [("near", x.near), ("far", x.far)])
    )


def _others(choice: Choice) -> str:
    names = [f"`{x.name}`" for x in choice.others]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more or "none"


def _link(line: Line) -> str:
    return f"[`{line.name}`](../reference/detectors/{registry_file(line.name)}.md)"


def registry_file(name: str) -> str:
    """The card of a detector: those of one class share it."""
    return registry.get(name).__module__.rpartition(".")[2] if name in registry.names() else name


def classifiers(found: Lines) -> tuple[list[str], list[list[str]]]:
    """Every detector of an ordinary classifier: the columns with numbers, and their cells."""
    head = list(TEXT["columns"])
    every = [
        [
            f"`{x.name}`",
            _tenth(x.near),
            _tenth(x.far),
            _tenth(x.alarms),
            _tenth(x.corrupted),
            _interval(x.hardened),
            _tenth(None if x.plain is None else x.plain.value),
            "–" if x.passes is None else f"{x.passes:.1f}",
            "–" if x.kilobytes is None else f"{x.kilobytes:,}",
            {True: "labelled", False: "images" if x.fits else "no", None: "–"}[x.labels],
            "yes" if x.onnx else "no",
        ]
        for x in found
    ]
    there = [i for i in range(len(head)) if sum(c[i] != "–" for c in every) >= ENOUGH * len(found)]
    return [head[i] for i in there], [[cells[i] for i in there] for cells in every]


def own(rows: Sequence[Row]) -> str:
    """Detectors with a network of their own, beside others, on digits."""
    networks = dict.fromkeys(r["network"] for r in rows if r["network"].startswith("digits-"))
    cells = [
        [
            f"`{x.name}`",
            f"`{network}`",
            *(_tenth(v) for v in (x.near, x.far, x.corrupted)),
            _interval(x.hardened),
            "–" if x.passes is None else f"{x.passes:.1f}",
        ]
        for network in networks
        for x in lines(rows, network)
    ]
    head = TEXT["own_columns"]
    there = [i for i in range(len(head)) if any(c[i] != "–" for c in cells)]
    return table([head[i] for i in there], [[c[i] for i in there] for c in cells])


def hardened() -> str:
    """The scores that were measured on hardened CIFAR-10 networks, attacked."""
    measured = Measured()
    cells = []
    for name, eps in ON_CIFAR.items():
        found = [measured.mean(name, "auroc", "standard", eps, s) for s in SCORES]
        cells.append([f"`{name}`", eps, *map(percent, found)])
    return table(["network", "eps", *(f"`{s}`" for s in SCORES)], cells)


def conditions(rows: Sequence[Row], found: Lines) -> dict[str, str]:
    """How it was measured, and what no detector survives."""
    mine = [r for r in rows if r["network"] in (CLASSIFIER, HARDENED, PLAIN)]
    said = lambda key, **of: _each(
        r[key] for r in mine if key in r and all(r[k] == v for k, v in of.items())
    )
    survivors = [x for x in found if x.plain]
    best = max(survivors, key=lambda x: x.plain.value if x.plain else 0, default=None)
    there = {r["detector"] for r in rows}
    missing = [f"`{n}`" for n in registry.names() if n not in there]
    return {
        "detectors": str(len(found)),
        "n": said("n", part="clean"),
        "n_corrupted": said("n_corrupted"),
        "severity": said("severity"),
        "n_hardened": said("n", network=HARDENED),
        "n_plain": said("n", network=PLAIN),
        "eps": said("eps"),
        "attack": said("attack"),
        "images": said("images"),
        "undefended": TEXT["undefended"].format(name=best.name, value=_tenth(best.plain.value))
        if best and best.plain
        else "",
        "missing": TEXT["missing"].format(names=", ".join(missing)) if missing else "",
    }


def _each(values: Iterable[object]) -> str:
    return " or ".join(map(str, dict.fromkeys(values))) or "–"


def _tenth(value: float | None) -> str:
    """Per cent."""
    return "–" if value is None else f"{100 * value:.1f}"


def _interval(found: Attacked | None) -> str:
    if found is None:
        return "–"
    mark = "" if found.verdict == "pass" else f" {found.verdict}"
    return f"{_tenth(found.value)} [{100 * found.low:.0f}, {100 * found.high:.0f}]{mark}"
