"""docs/evidence/robust-head.md from the rows of `rood_zoo.heads` and the cards of the zoo."""

from collections.abc import Iterable
from pathlib import Path

from rood.metrics import Interval
from rood.models import zoo
from rood_zoo.heads import PROTOCOLS, TESTS
from tools.markdown import RESULTS, Row, percent, read, table, texts
from tools.zoo import VERDICT

TEXT = texts("robust_head")
ROWS = RESULTS / "robust-head.jsonl"
SIDES = ("clean", "in", "out", "both")
MAIN, OTHER = "cifar10-joint-8", "cifar10-aloe-8"
LABELS = {
    "standard on the same": "`standard`, the same images",
    "pgd1000x5": "PGD-1000 x5",
    "pgd100": "PGD-100",
}


def page() -> str:
    """The whole page."""
    rows = _current(read(ROWS))
    main = lambda side: percent(_mean(rows, MAIN, "standard", "8/255", side))
    (accuracy,) = (r for r in rows if r["measure"] == "accuracy" and r["network"] == MAIN)
    few = {r["n_in"] for r in rows if r["attack"] == "pgd1000x5"}
    return (
        TEXT["page"]
        .lstrip()
        .format(
            n=max(r["n_out"] for r in rows if r.get("attack") == "standard"),
            few=", ".join(map(str, sorted(few))),
            other=f"`{OTHER}`",
            before=percent(_before()),
            both=both(rows),
            sets=sets(rows),
            checks=checks(rows),
            accuracy=f"{100 * accuracy['value']:.1f}",
            value=main("both"),
            clean=main("clean"),
        )
        + ablation()
    )


def ablation(path: Path = RESULTS / "robust-head-ablation.jsonl") -> str:
    """One change a row, where it was measured."""
    by: dict[str, dict[str, Row]] = {}
    for r in read(path):
        by.setdefault(r["change"], {})[r["measure"]] = r
    whole = {change: r for change, r in by.items() if {"training", "clean", "both"} <= r.keys()}
    if not whole:
        return ""
    lines = []
    for change, r in sorted(whole.items(), key=lambda item: -item[1]["both"]["value"]):
        value = Interval(*(r["both"][k] for k in ("value", "low", "high")))
        run = r["training"]
        numbers = [f"{run['value']:.2f}", f"{100 * run['accuracy']:.1f}"]
        clean, both = percent(r["clean"]["value"]), percent(value, interval=True)
        lines.append([change, *numbers, clean, both, str(run["seconds"])])
    first = next(iter(whole.values()))["both"]
    head = ["change", "loss", "accuracy", "clean", "both sides 8/255", "seconds"]
    text = TEXT["ablation"].lstrip().format(n=first["n_in"], epochs=first["epochs"])
    return f"\n{text}\n{table(head, lines)}\n"


def both(rows: list[Row]) -> str:
    """Means over the test sets."""
    lines = []
    for name, eps in _budgets(rows):
        score = next(r["detector"] for r in _reported(rows, name))
        (right,) = (r for r in rows if r["measure"] == "accuracy" and r["network"] == name)
        found = [percent(_mean(rows, name, "standard", eps, side)) for side in SIDES[:3]]
        last = percent(_mean(rows, name, "standard", eps, "both"), interval=True)
        accuracy = f"{100 * right['value']:.1f}"
        lines.append([f"`{name}`", f"`{score}`", accuracy, eps, *found, f"**{last}**"])
    head = ["network", "score", "accuracy", "eps", "clean", "ID side", "OOD side", "both sides"]
    return table(head, lines)


def sets(rows: list[Row]) -> str:
    """Each OOD set under `standard`."""
    lines = []
    for name, eps in _budgets(rows):
        for dataset in PROTOCOLS[name].reported:
            found = [_one(rows, name, "standard", eps, dataset, side) for side in SIDES]
            lines.append([f"`{name}`", eps, dataset, *(percent(v) for v in found)])
    return table(["network", "eps", "OOD set", "clean", "ID side", "OOD side", "both sides"], lines)


def checks(rows: list[Row]) -> str:
    """Other attacks than `standard`."""
    lines = []
    for name in _names(rows):
        there = {(r["attack"], r["eps"]): r["n_in"] for r in _reported(rows, name)}
        for (attack, eps), n in there.items():
            if attack != "standard":
                value = percent(_mean(rows, name, attack, eps, "both"))
                lines.append([f"`{name}`", LABELS.get(attack, attack), eps, str(n), value])
    return table(["network", "attack", "eps", "images per side", "both sides"], lines)


def _current(rows: list[Row]) -> list[Row]:
    """The rows of the weights that are in the zoo."""
    hashes = {n: zoo.card(n)["sha256"] for n in zoo.names() if n in PROTOCOLS}
    return [r for r in rows if hashes.get(r["network"], "").startswith(r["sha256"])]


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(r["network"] for r in rows))


def _reported(rows: list[Row], name: str) -> list[Row]:
    return [r for r in rows if r["measure"] == "report" and r["network"] == name]


def _budgets(rows: list[Row]) -> list[tuple[str, str]]:
    """Every network with each eps of `standard`."""
    standard = (r for r in rows if r["measure"] == "report" and r["attack"] == "standard")
    return list(dict.fromkeys((r["network"], r["eps"]) for r in standard))


def _one(
    rows: list[Row], name: str, attack: str, eps: str, dataset: str, side: str
) -> Interval | None:
    wanted = (attack, eps, dataset, side)
    for r in _reported(rows, name):
        if (r["attack"], r["eps"], r["dataset"], r["side"]) == wanted:
            return Interval(r["value"], r["low"], r["high"])
    return None


def _mean(rows: list[Row], name: str, attack: str, eps: str, side: str) -> Interval | None:
    """Mean over the test sets, and of the ends."""
    found = [_one(rows, name, attack, eps, s, side) for s in TESTS]
    there = [v for v in found if v is not None]
    if len(there) < len(TESTS):
        return None
    return Interval(*(sum(v) / len(there) for v in zip(*there, strict=True)))


def _before() -> float:
    """What the network without such a head keeps, measured by `rood_zoo.verdict`."""
    wanted = {"network": OTHER, "measure": "verdict", "detector": "mirrored_energy"}
    wanted |= {"attack": "standard", "eps": "8/255"}
    found = [r["value"] for r in read(VERDICT) if wanted.items() <= r.items()]
    return float(sum(found) / len(found))
