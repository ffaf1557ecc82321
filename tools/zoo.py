"""docs/evidence/zoo.md from the cards of the zoo and the rows of `rood_zoo.table` and `rood_zoo.verdict`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rood.metrics import Interval
from rood.models import zoo
from rood.threat import Linf
from rood_papers.framework.paper import printed
from tools.markdown import RESULTS, Row, percent, read, table, texts

TEXT = texts("zoo")
ROWS = RESULTS / "zoo.jsonl"
VERDICT = RESULTS / "zoo-verdict.jsonl"
FAR = ("svhn", "dtd", "scenes", "near", "patches", "noise")
OBJECTIVES = {
    **{"cross_entropy": "CE", "oe": "OE", "adv": "ADV", "aoe": "AOE", "aloe": "ALOE"},
    "joint": "joint head",
}
NAMES = {"algorithm1": "`Alg. 1`", "pgd40x3": "`PGD-40 x3`", "standard": "`standard`"}
WORLDS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "gtsrb": "GTSRB",
    "svhn": "SVHN",
    "digits": "Digits",
    "mnist": "MNIST",
    "fashion": "Fashion-MNIST",
}

SCORES = ("msp", "mirrored_msp", "energy", "mirrored_energy", "gen", "entropy")

METHODS = {  # row of the paper -> our objective and detector
    "MSP": ("ce", "msp"),
    "ODIN": ("ce", "odin"),
    "OE": ("oe", "msp"),
    "OE+ODIN": ("oe", "odin"),
    "ADV": ("adv", "msp"),
    "AOE": ("aoe", "msp"),
    "ALOE": ("aloe", "msp"),
    "ALOE+ODIN": ("aloe", "odin"),
}


class Measured:
    """The cards of the networks, and the rows measured on their present weights."""

    def __init__(self, path: Path = ROWS) -> None:
        rows = read(path)
        self.cards = {n: zoo.card(n) for n in zoo.names()}
        self.setups = [r for r in rows if r["measure"] == "setup"]
        self.rows = [r for r in rows if self._current(r)]
        self._known = {self._key(r): r for r in self.rows}

    def _current(self, row: Row) -> bool:
        """Rows of weights that were replaced do not count."""
        card = self.cards.get(row.get("network", ""))
        return card is not None and card["sha256"].startswith(row["sha256"])

    @staticmethod
    def _key(r: Row) -> tuple[object, ...]:
        place = (r["network"], r["measure"], r.get("detector"), r.get("dataset"))
        return (*place, r["attack"], r["eps"])

    def one(self, network: str, measure: str, attack: str, eps: str, **of: str) -> Interval | None:
        key = (network, measure, of.get("detector"), of.get("dataset"), attack, eps)
        r = self._known.get(key)
        return None if r is None else Interval(r["value"], r["low"], r["high"])

    def mean(
        self, network: str, measure: str, attack: str, eps: str, detector: str = "msp"
    ) -> Interval | None:
        """Mean over the sets of FAR that this network is tested on, and of the interval's ends."""
        found = [
            self.one(network, measure, attack, eps, detector=detector, dataset=s)
            for s in FAR
            if s in self.sets(network)
        ]
        if not found or None in found:
            return None
        value, low, high = (sum(v) / len(found) for v in zip(*found, strict=True))  # type: ignore[misc]
        return Interval(value, low, high)

    def sets(self, network: str) -> list[str]:
        """The OOD sets of a network."""
        named = (r["dataset"] for r in self.rows if r["network"] == network and "dataset" in r)
        return list(dict.fromkeys(named))

    def eps(self, network: str) -> list[str]:
        """The budgets it was attacked at; the last is the one it was trained for."""
        used = (
            r["eps"] for r in self.rows if r["network"] == network and r["attack"] == "algorithm1"
        )
        return list(dict.fromkeys(used))

    def networks(self, world: str) -> list[str]:
        """In the order of their objectives."""
        order = list(OBJECTIVES)
        rank = lambda n: (order.index(self.objective(n)) if self.objective(n) in order else 9, n)
        return sorted((n for n in self.cards if n.partition("-")[0] == world), key=rank)

    def measured(self, world: str) -> list[str]:
        """The networks that have rows."""
        return [n for n in self.networks(world) if self.eps(n)]

    def objective(self, network: str) -> str:
        """Its name in the registry."""
        return str(self.cards[network]["training"]["objective"]["name"])


def page(measured: Measured | None = None) -> str:
    """The whole page."""
    m = Measured() if measured is None else measured
    parts = [TEXT["head"].format(setup=_setup(m))]
    if not m.rows:
        return "\n\n".join([*parts, "Not measured yet.", TEXT["trained"], _training(m)]) + "\n"
    parts += [TEXT["how"].format(counts=_counts(m)), *_chosen(m, Measured(VERDICT))]
    for world, title in WORLDS.items():
        if m.measured(world):
            parts += [f"## {title}", _table(m, world, "msp")]
    parts += [TEXT["odin"], *(_table(m, w, "odin") for w in WORLDS if m.measured(w))]
    parts += [*_others(m), *_beside(m), TEXT["by_set"], *_by_set(m), TEXT["trained"], _training(m)]
    return "\n\n".join(parts) + "\n"


def _setup(m: Measured) -> str:
    if not m.setups:
        return ""
    seconds = sum(s["seconds"] for s in m.setups)
    where = " and ".join(dict.fromkeys(f"{s['device']}, torch {s['torch']}" for s in m.setups))
    return f" ({seconds:.0f} s on {where})"


def _counts(m: Measured) -> str:
    """How many images most networks were attacked on, and the exceptions."""
    said = []
    for attack, name in (("clean", "clean and `Alg. 1`"), ("pgd40x3", "`PGD-40 x3`"), ("standard", "`standard`")):  # fmt: skip
        n = {r["network"]: r["n_in"] for r in m.rows if r["attack"] == attack and "dataset" in r}
        if n:
            usual = Counter(n.values()).most_common(1)[0][0]
            others = [f"`{k}` {v:,}" for k, v in n.items() if v != usual]
            beside = f" ({', '.join(others)})" if others else ""
            said.append(f"{usual:,} {name}{beside}")
    return ", ".join(said)


def _chosen(m: Measured, judged: Measured) -> Iterator[str]:
    """The networks whose score was chosen on validation images, beside MSP."""
    lines = []
    for n in dict.fromkeys(r["network"] for r in judged.rows if r["measure"] == "validation"):
        of = lambda measure, n=n: [
            r for r in judged.rows if (r["network"], r["measure"]) == (n, measure)
        ]
        validation = {r["detector"]: r["value"] for r in of("validation")}
        eps, accuracy = of("validation")[0]["eps"], percent(m.one(n, "accuracy", "clean", "0"))
        for d in dict.fromkeys((max(validation, key=lambda d: validation[d]), "msp")):
            mean = [judged.mean(n, "verdict", a, eps, d) for a in ("pgd40x3", "standard")]
            sets = [
                f"{r['dataset']} {percent(r['value'])}"
                for r in of("verdict")
                if (r["detector"], r["attack"]) == (d, "standard")
            ]
            cells = [f"`{n}`", eps, accuracy, d, percent(validation.get(d))]
            cells += [*(percent(v, interval=True) for v in mean), ", ".join(sets)]
            lines.append(cells)
    if lines:
        head = ["network", "eps", "accuracy", "score", "validation", NAMES["pgd40x3"]]
        yield TEXT["chosen"]
        yield table([*head, NAMES["standard"], "each set under `standard`"], lines)


def _table(m: Measured, world: str, detector: str) -> str:
    """A line for each network and budget."""
    attacks = ("algorithm1", "pgd40x3", "standard")[: 3 if detector == "msp" else 2]
    head = ["network", "architecture", "trained", "accuracy", "eps", "robust accuracy"]
    head += ["AUROC clean", *(f"→ {NAMES[a]}" for a in attacks)]
    head += ["FPR95 clean → `Alg. 1`", "detection error clean → `Alg. 1`"]
    lines = []
    for n in m.measured(world):
        for i, eps in enumerate(m.eps(n)):
            mean = lambda measure, attack, n=n, eps=eps: percent(
                m.mean(n, measure, attack, "0" if attack == "clean" else eps, detector)
            )
            first = [f"`{n}`", _architecture(m.cards[n]), _trained(m, n)]
            first.append(percent(m.one(n, "accuracy", "clean", "0")))
            cells = first if i == 0 else [""] * len(first)
            cells += [eps, percent(m.one(n, "accuracy", "pgd10", eps)), mean("auroc", "clean")]
            cells += [mean("auroc", a) for a in attacks]
            for measure in ("fpr95_in", "detection_error"):
                cells.append(f"{mean(measure, 'clean')} → {mean(measure, 'algorithm1')}")
            lines.append(cells)
    return table(head, lines)


def _others(m: Measured) -> Iterator[str]:
    """Networks with another score than MSP that was attacked through itself."""
    attacks = ("pgd40x3", "standard")
    lines = []
    for n in (n for world in WORLDS for n in m.measured(world)):
        eps = m.eps(n)[-1]
        found = [m.mean(n, "auroc", a, eps, d) for a in attacks for d in SCORES]
        if any(v for i, v in enumerate(found) if i % len(SCORES)):  # more than MSP's
            lines.append([f"`{n}`", eps, *(percent(v) for v in found)])
    if lines:
        heads = [f"{d} {NAMES[a]}" for a in attacks for d in SCORES]
        yield TEXT["others"]
        yield table(["network", "eps", *heads], lines)


def _architecture(card: dict[str, Any]) -> str:
    s = card["settings"]
    names = {"resnet18": "ResNet-18", "small_cnn": "small CNN", "vit": "ViT"}
    name = names.get(card["backbone"], str(card["backbone"]))
    if card["backbone"] == "wide_resnet":
        name = f"WRN-{s['depth']}-{s['widen']}"
    elif "width" in s:
        name += f", width {s['width']}"
    side = card["shape"][1]
    return f"{name}, {side} px" if side > 32 else name


def _trained(m: Measured, network: str) -> str:
    facts = m.cards[network]["training"]
    name = OBJECTIVES.get(facts["objective"]["name"], facts["objective"]["name"])
    augmix = "AugMix, " if facts["settings"].get("augment", {}).get("augmix") else ""
    eps = facts["objective"].get("eps")
    keep, weight = facts["objective"].get("keep", 1.0), facts["objective"].get("weight")
    mined = f", hardest {keep:.0%} of outliers, weight {weight:g}" if keep < 1 else ""
    return (
        f"{augmix}{name}"
        + ("" if eps is None else f" at {str(Linf(eps)).partition(':')[2]}")
        + mined
    )


def _beside(m: Measured) -> Iterator[str]:
    worlds = [w for w in ("cifar10", "cifar100", "gtsrb") if m.networks(w)]
    if not worlds:
        return
    yield TEXT["aloe"]
    for world in worlds:
        yield _theirs_and_ours(m, world)
        yield _orders(m, world)


def _theirs_and_ours(m: Measured, world: str) -> str:
    head = [WORLDS[world], "accuracy", "robust accuracy"]
    kinds = {"auroc": "AUROC", "fpr95_in": "FPR95", "detection_error": "detection error"}
    head += [f"{title} {when}" for title in kinds.values() for when in ("clean", "`Alg. 1`")]
    lines = []
    for method, (objective, detector) in METHODS.items():
        n = f"{world}-{objective}"
        cells = [f"{method} (`{n}`)", *_accuracies(m, world, method, n)]
        for measure in kinds:
            for attack, eps, level in (("clean", "0", 0), ("algorithm1", "1/255", 1)):
                of = {"inside": world, "method": method, "eps": level, "metric": measure}
                ours = m.mean(n, measure, attack, eps, detector)
                cells.append(f"{percent(printed('aloe', 'table1', **of))} / {percent(ours)}")
        lines.append(cells)
    return table(head, lines)


def _accuracies(m: Measured, world: str, method: str, n: str) -> list[str]:
    if "ODIN" in method:
        return ["", ""]  # those of the network above
    of = {"inside": world, "method": "Original" if method == "MSP" else method}
    cells = []
    for metric, attack, eps in (("accuracy", "clean", "0"), ("robust_accuracy", "pgd10", "1/255")):
        theirs = printed("aloe", "table4", metric=metric, **of)
        cells.append(f"{percent(theirs)} / {percent(m.one(n, 'accuracy', attack, eps))}")
    return cells


def _orders(m: Measured, world: str) -> str:
    """Whether the methods rank alike, by AUROC of MSP."""
    said = []
    methods = [k for k, (_, detector) in METHODS.items() if detector == "msp"]
    for attack, eps, level in (("clean", "0", 0), ("algorithm1", "1/255", 1)):
        of = {"inside": world, "eps": level, "metric": "auroc"}
        ours = {k: m.mean(f"{world}-{METHODS[k][0]}", "auroc", attack, eps) for k in methods}
        known = [k for k, v in ours.items() if v is not None]
        if len(known) < 2:
            continue
        by_us = sorted(known, key=lambda k, ours=ours: ours[k].value)
        by_them = sorted(known, key=lambda k, of=of: printed("aloe", "table1", method=k, **of))
        when = "Clean" if attack == "clean" else "Under `Alg. 1`"
        same = "the same order" if by_us == by_them else f"theirs {' < '.join(by_them)}"
        missing = len(methods) - len(known)
        left = f" ({missing} not measured)" if missing else ""
        said.append(f"{when}: ours {' < '.join(by_us)}, {same}{left}.")
    return " ".join(said) or "Not measured yet."


def _by_set(m: Measured) -> Iterator[str]:
    for world, title in WORLDS.items():
        networks = [n for n in m.networks(world) if m.sets(n)]
        if not networks:
            continue
        sets = m.sets(networks[0])
        lines = []
        for n in networks:
            for eps in m.eps(n):
                cells = [f"`{n}`", eps]
                for s in sets:
                    of = {"detector": "msp", "dataset": s}
                    clean = percent(m.one(n, "auroc", "clean", "0", **of))
                    moved = percent(m.one(n, "auroc", "algorithm1", eps, **of))
                    cells.append(f"{clean} → {moved}")
                lines.append(cells)
        yield table([title, "eps", *sets], lines)


def _training(m: Measured) -> str:
    head = ["network", "MB", "epochs", "seconds", "on", "trained on", "outliers", "again"]
    lines = []
    for n in (n for world in WORLDS for n in m.networks(world)):
        facts = m.cards[n]["training"]
        size = zoo.path(n).stat().st_size / 1e6
        cells = [f"`{n}`", f"{size:.2f}", str(facts["settings"]["epochs"]), str(facts["seconds"])]
        cells += [facts["hardware"], _data(facts["data"]), _data(facts["outliers"])]
        lines.append([*cells, f"`{facts['command']}`"])
    total = sum(zoo.path(n).stat().st_size for n in zoo.names()) / 1e6
    return f"{table(head, lines)}\n\nAll weights together: {total:.1f} MB."


def _data(about: dict[str, Any] | None) -> str:
    """How many of which images."""
    if about is None:
        return "none"
    specs = [s.strip() for s in about["spec"].split(",") if ":" in s]  # not those of n=4000
    names = [s.replace("npz:$ROOD_DATA/", "").removesuffix(".npz").replace(":", " ") for s in specs]
    return f"{about['images']:,} of {', '.join(names)}"
