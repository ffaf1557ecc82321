"""Two libraries' scores of the same images: how they are compared, kept and shown.

Nothing here imports the other library until `load_peer` is called, so that the page can be made,
and tested, without it.
"""

import importlib
import inspect
import json
import sys
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from benchmarks.bare import Normalise
from rood.metrics import auroc
from rood.models.model import Model
from tools.markdown import table

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "docs" / "results" / "parity.jsonl"
PAGE = ROOT / "docs" / "evidence" / "parity.md"
BAR = 0.999
TEXT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

Score = Callable[[Tensor], Tensor]  # images in [0, 1] to one score each


@dataclass(frozen=True)
class Pair:
    """One detector of rood beside one of theirs."""

    detector: str  # its name in rood's registry
    theirs: str  # its class there
    ours: Score
    other: Score
    options: Mapping[str, Any]
    fine: Score | None = None  # theirs from float64 logits, where float32 ties at its end
    same: bool = True
    adapted: Score | None = None  # ours with their definition, where that differs
    reason: str = ""


@dataclass(frozen=True)
class Images:
    """What is scored: in-distribution first, then all the rest."""

    pixels: Tensor
    inside: int

    def probe(self) -> Tensor:
        """A few of either side, to ask for a gradient."""
        return self.pixels[:: len(self.pixels) // 16]


def compare(pair: Pair, images: Images) -> dict[str, Any]:
    """The row of one pair."""
    ours, theirs = scores(pair.ours, images.pixels), scores(pair.other, images.pixels)
    fine = theirs if pair.fine is None else scores(pair.fine, images.pixels)
    adapted = None if pair.adapted is None else scores(pair.adapted, images.pixels)
    return {
        "detector": pair.detector,
        "theirs": pair.theirs,
        "options": dict(pair.options),
        "spearman": correlation(ours, fine),
        "spearman_float32": correlation(ours, theirs),
        "spearman_their_definition": None if adapted is None else correlation(adapted, theirs),
        "tied_theirs": len(theirs) - len(theirs.unique()),
        "auroc_ours": _auroc(ours, images.inside),
        "auroc_theirs": _auroc(theirs, images.inside),
        "same_definition": pair.same,
        "reason": pair.reason,
        "gradient_ours": reaches_pixels(pair.ours, images.probe()),
        "gradient_theirs": reaches_pixels(pair.other, images.probe()),
    }


def alone(theirs: str, other: Score, images: Images) -> dict[str, Any]:
    """The row of a detector that only they have: whether it can be attacked."""
    reached = reaches_pixels(other, images.probe())
    return {"detector": None, "theirs": theirs, "gradient_theirs": reached}


def scores(score: Score, x: Tensor, batch: int = 256) -> Tensor:
    found = torch.cat([score(part).detach().double().cpu() for part in x.split(batch)])
    if not found.isfinite().all():
        raise SystemExit(f"{int((~found.isfinite()).sum())} scores are not finite")
    return found


def correlation(a: Tensor, b: Tensor) -> float:
    return round(float(spearmanr(a.numpy(), b.numpy()).statistic), 6)


def reaches_pixels(score: Score, x: Tensor) -> bool:
    """Whether autograd finds a way from the score back to the images, and a slope on it."""
    x = x.detach().clone().requires_grad_()
    s = score(x)
    if not s.requires_grad:
        return False
    (gradient,) = torch.autograd.grad(s.sum(), x, allow_unused=True)
    return gradient is not None and bool((gradient != 0).any())


def _auroc(s: Tensor, inside: int) -> float:
    return round(auroc(inside=s[:inside], outside=s[inside:]), 6)


def plain(model: Model) -> nn.Sequential:
    """A small CNN without rood's hooks: a fault in them must not be on both sides."""
    layers = model.net.get_submodule("layers").children()
    return nn.Sequential(Normalise(model.mean, model.std), *layers, model.head).eval()


def load_peer() -> ModuleType:
    """pytorch_ood's detectors, with stand-ins where its data sets and networks want torchvision.

    Its top-level package imports data sets, which import torchvision, whose compiled part does not
    load beside a CPU build of torch. Only the detectors are used here, and none may name it.
    """
    parts = ("", ".transforms", ".transforms.functional", ".datasets", ".datasets.utils")
    for part in (*parts, ".models", ".models.resnet"):
        name = f"torchvision{part}"
        sys.modules[name] = stand_in = _StandIn(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, stand_in)
    detector = importlib.import_module("pytorch_ood.detector")
    used = ("pytorch_ood.detector", "pytorch_ood.utils", "pytorch_ood.api")
    for name, module in list(sys.modules.items()):
        if name.startswith(used) and "torchvision" in inspect.getsource(module):
            raise SystemExit(f"{name} uses torchvision: its scores would be those of a stand-in")
    return detector


class _StandIn(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


def short(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is below the bar, a sentence each."""
    found = []
    for r in rows:
        value = r["spearman"] if r["same_definition"] else r["spearman_their_definition"]
        if value is None or value < BAR:
            found.append(f"{r['detector']} and {r['theirs']}: {value}, expected at least {BAR}")
    return found


def read(path: Path = ROWS) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The run, the rows of pairs, and those of what only they have."""
    run, *rows = map(json.loads, path.read_text().splitlines())
    pairs = [r for r in rows if r["detector"]]
    return run["run"], pairs, [r for r in rows if not r["detector"]]


def page(path: Path = ROWS) -> str:
    """The Markdown that the rows give."""
    run, pairs, others = read(path)
    parts = [_head(run, pairs), _table(pairs), _notes(pairs), _gradients(pairs, others)]
    return "\n\n".join([*parts, _left_out(run, others), _conditions(run)]) + "\n"


def _head(run: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]) -> str:
    same = [r["spearman"] for r in pairs if r["same_definition"]]
    other = [r["spearman_their_definition"] for r in pairs if not r["same_definition"]]
    checked = [v for v in other if v is not None]
    title = f"# The same scores as pytorch-ood {run['pytorch_ood']}"
    note = "<!-- written by `make peers` from docs/results/parity.jsonl; do not edit -->"
    text = TEXT["head"].format(
        run=run,
        bar=BAR,
        same=len(same),
        lowest=min(same),
        other=len(other),
        checked=len(checked),
        lowest_checked=min(checked, default=1),
    )
    return "\n\n".join([title, note, _wrapped(text)])


def _wrapped(text: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    return textwrap.fill(
        text,
        100,
        initial_indent=bullet,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(pairs: Sequence[Mapping[str, Any]]) -> str:
    head = ("rood", "pytorch-ood", "options", "same definition", "Spearman")
    lines = []
    for r in pairs:
        mark = "yes" if r["same_definition"] else "no"
        numbers = (f"{r[k]:.4f}" for k in ("spearman", "auroc_ours", "auroc_theirs"))
        lines.append([f"`{r['detector']}`", r["theirs"], _options(r), mark, *numbers])
    return table([*head, "AUROC ours", "AUROC theirs"], lines)


def _options(row: Mapping[str, Any]) -> str:
    shown = lambda v: ", ".join(v) if isinstance(v, list) else str(v)
    return "; ".join(f"{k} {shown(v)}" for k, v in row["options"].items()) or "defaults"


def _notes(pairs: Sequence[Mapping[str, Any]]) -> str:
    lines = ["## Where they differ, in definition or in numerics", ""]
    repeated = min(r["tied_theirs"] for r in pairs)  # images that are there twice
    for r in (r for r in pairs if r["reason"]):
        value, adapted = r["spearman"], r["spearman_their_definition"]
        extra = f"As they come: {r['spearman_float32']:.6f}"
        if r["spearman_float32"] != value:
            extra += f"; in float64: {value:.6f}"
        if tied := r["tied_theirs"] - repeated:
            extra += f" ({tied} of their scores tie with that of another image)"
        if adapted is not None:
            extra += f"; with their choice in ours: {adapted:.6f}"
        text = f"`{r['detector']}` ({_options(r)}) and {r['theirs']}: {r['reason']} {extra}."
        lines.append(_wrapped(text, "- "))
    return "\n".join(lines)


def _gradients(pairs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    reached: dict[str, bool] = {}
    for r in (*pairs, *others):
        reached[r["theirs"]] = reached.get(r["theirs"], False) or r["gradient_theirs"]
    ours = {r["detector"]: r["gradient_ours"] for r in pairs}
    cut = sorted((n for n, yes in reached.items() if not yes), key=str.lower)
    whole = sorted(set(reached) - set(cut), key=str.lower)
    text = TEXT["gradients"].format(
        reached=sum(ours.values()),
        ours=len(ours),
        stepped=", ".join(f"`{n}`" for n, yes in ours.items() if not yes),
        theirs=len(reached),
        **{"whole": len(whole), "whole_names": ", ".join(whole)},
        **{"cut": len(cut), "cut_names": ", ".join(cut)},
    )
    return f"## Can the score be attacked?\n\n{_wrapped(text)}"


def _left_out(run: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    theirs = ", ".join(r["theirs"] for r in others)
    ours = ", ".join(f"`{n}`" for n in run["only_ours"])
    bullets = [t.format(theirs=theirs, ours=ours, **run) for t in TEXT["left_out"]]
    return "\n".join(["## Not compared", "", *(_wrapped(b, "- ") for b in bullets)])


def _conditions(run: Mapping[str, Any]) -> str:
    sets = ", ".join(f"{name} {n}" for name, n in run["sets"].items())
    return f"## Conditions\n\n{_wrapped(TEXT['conditions'].format(run=run, sets=sets))}"
