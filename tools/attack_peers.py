"""PGD beside that of other libraries: the table that the rows of `make peers` give."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parent.parent / "docs" / "results" / "attack-peers.jsonl"
PEERS = ("torchattacks", "foolbox")


def read(path: Path = ROWS) -> list[dict[str, Any]]:
    """The run first, then a row for every way of asking."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def peer_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table and the conditions under it."""
    run = next(r["run"] for r in rows if "run" in r)
    head = ["steps", "library", "call", "loss from x", "lead over torchattacks", "loss", "seconds"]
    head += [f"{kind} / {name}" for name in PEERS for kind in ("wall", "cpu")]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [_line(r) for r in rows if "run" not in r]
    return "\n".join([*lines, "", _conditions(run)])


def _line(r: Mapping[str, Any]) -> str:
    ratios = [
        "" if name == r["library"] else f"{r[kind][name]:.3f}"
        for name in PEERS
        for kind in ("wall", "cpu")
    ]
    cells = [str(r["steps"]), r["library"], r["what"], f"{r['loss_from_x']:.2f}"]
    lead, error = (r[k][PEERS[0]] for k in ("lead", "lead_error"))
    cells.append("" if r["library"] == PEERS[0] else f"{lead:+.2f} ± {error:.2f}")
    cells += [f"{r['loss']:.2f} ± {r['loss_error']:.2f}", f"{r['seconds']:.2f}", *ratios]
    return f"| {' | '.join(cells)} |"


def _conditions(run: Mapping[str, Any]) -> str:
    bars = ", ".join(f"{bar} of {name}'s" for name, bar in run["bars"].items())
    judged = ", ".join(f"PGD-{steps} ({what})" for steps, what in run["judged"])
    versions = ", ".join(f"{name} {run[name]}" for name in ("rood", *PEERS, "torch", "python"))
    return (
        f"PGD, L-infinity, eps {round(255 * run['eps'])}/255, step 2.5 eps / steps, one restart; "
        f"{run['network']}, test images. Loss: the mean cross-entropy of what a call "
        f"gave back, by the bare network; from x, where all begin at the same point, on "
        f"{run['images_from_x']} images, its lead with the standard error of the paired differences; "
        f"and from random starts, which each library draws for itself, on {run['images']}, with its "
        f"standard error over the runs. Times, from random starts on {run['images']} images: the median "
        f"of {run['runs']} interleaved runs, ratios taken run by run; "
        f"cpu is the process's own time. Bars for {judged}: {bars} wall time, and from x a mean loss no "
        f"lower than theirs. `compare=False`, as they have it, saves the forward pass that sees to it that no image "
        f"comes back worse than it was. {run['date']}, "
        f"{run['hardware']}; {versions}."
    )
