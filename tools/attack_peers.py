"""PGD beside that of other libraries: the table that the rows of `make peers` give."""

from collections.abc import Mapping, Sequence
from typing import Any

from tools.markdown import RESULTS, table

ROWS = RESULTS / "attack-peers.jsonl"
PEERS = ("torchattacks", "foolbox")


def peer_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table and the conditions under it."""
    run = next(r["run"] for r in rows if "run" in r)
    head = ["steps", "library", "call", "loss from x", "lead over torchattacks", "loss", "seconds"]
    head += [f"{kind} / {name}" for name in PEERS for kind in ("wall", "cpu")]
    lines = [_line(r) for r in rows if "run" not in r]
    return f"{table(head, lines)}\n\n{_conditions(run)}"


def _line(r: Mapping[str, Any]) -> list[str]:
    ratios = [
        "" if name == r["library"] else f"{r[kind][name]:.3f}"
        for name in PEERS
        for kind in ("wall", "cpu")
    ]
    cells = [str(r["steps"]), r["library"], r["what"], f"{r['loss_from_x']:.2f}"]
    lead, error = (r[k][PEERS[0]] for k in ("lead", "lead_error"))
    cells.append("" if r["library"] == PEERS[0] else f"{lead:+.2f} ± {error:.2f}")
    return [*cells, f"{r['loss']:.2f} ± {r['loss_error']:.2f}", f"{r['seconds']:.2f}", *ratios]


def _conditions(run: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {run[name]}" for name in ("rood", *PEERS, "torch", "python"))
    return (
        f"PGD, L-infinity, eps {round(255 * run['eps'])}/255, step 2.5 eps / steps, one restart; "
        f"{run['network']}, test images. Loss is the mean cross-entropy of the attacked images: from "
        f"x, where all start at the same point, on {run['images_from_x']} images, with the standard "
        f"error of the paired differences; from random starts on {run['images']}, with the standard "
        f"error over the runs. Times are medians of {run['runs']} interleaved runs from random "
        "starts, ratios taken run by run; cpu is the process's own time. `compare=False`, the other "
        "libraries' behaviour, saves the forward pass that guarantees that no image gets worse. "
        f"{run['date']}, {run['hardware']}; {versions}."
    )
