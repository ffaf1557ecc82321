"""What is known of the networks of the zoo: their cards, and the rows of `rood_zoo.table`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rood.metrics import Interval
from rood.models import zoo

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "zoo.jsonl"
FAR = ("svhn", "dtd", "scenes", "near", "patches", "noise")
OBJECTIVES = {"cross_entropy": "CE", "oe": "OE", "adv": "ADV", "aoe": "AOE", "aloe": "ALOE"}
Row = dict[str, Any]


class Measured:
    """What is known of the networks whose weights are there now."""

    def __init__(self, path: Path = RESULTS) -> None:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines]
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
        """Over the sets of FAR that this network is tested on; the ends are averaged too."""
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
        """The budgets it was attacked at, the one it was made for last."""
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
        """Those of them that have rows."""
        return [n for n in self.networks(world) if self.eps(n)]

    def objective(self, network: str) -> str:
        """Its name in the registry."""
        return str(self.cards[network]["training"]["objective"]["name"])


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(r)} |" for r in rows)


def percent(value: Interval | float | None) -> str:
    """Two digits, as papers print them."""
    if value is None:
        return "–"
    return f"{100 * (value.value if isinstance(value, Interval) else value):.2f}"
