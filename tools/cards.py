"""docs/reference/{detectors,attacks,objectives}/*.md: a card for everything registered."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from rood import attacks, detectors
from rood.cli import list as catalogue
from rood.training import objectives
from tools import detectors as measured
from tools.markdown import table, texts

TEXT = texts("cards")
REGISTRIES = {
    "detectors": detectors.registry,
    "attacks": attacks.registry,
    "objectives": objectives.registry,
}
FORMULA = re.compile(r" = |argmax")


def pages() -> Iterator[tuple[str, str]]:
    """Path under docs/reference and text of every card, and of the lists that lead to them."""
    for kind, registry in REGISTRIES.items():
        entries = {e.name: e for e in catalogue.KINDS[kind]()}
        named = {f: names_of(registry, f) for f in registry.files}
        yield f"{kind}/index.md", _index(kind, named, entries)
        for file, names in named.items():
            yield (
                f"{kind}/{file}.md",
                _card(kind, registry.cls(file), names, [entries[n] for n in names]),
            )


def names_of(registry: Any, file: str) -> list[str]:
    """The registry names of the class in a file."""
    cls = registry.cls(file)
    return [
        n for n in registry.names() if getattr(registry.get(n), "__self__", registry.get(n)) is cls
    ]


def _index(kind: str, named: dict[str, list[str]], entries: dict[str, Any]) -> str:
    lines = []
    for file, names in named.items():
        cells = [", ".join(f"[`{n}`]({file}.md)" for n in names), _said(kind, file)["words"]]
        if kind == "detectors":
            cells.append(entries[names[0]].cost)
        lines.append([*cells, entries[names[0]].paper])
    head = ["name", "in words", *["passes"] * (kind == "detectors"), "source"]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *named, "```"])
    return "\n".join([TEXT["index"][kind].lstrip(), table(head, lines), "", tree, ""])


def _card(kind: str, cls: Any, names: list[str], entries: list[Any]) -> str:
    first, *rest = (inspect.getdoc(cls) or "").split("\n\n")
    said = _said(kind, cls.__module__.rpartition(".")[2])
    formula = f"```text\n{first}\n```" if FORMULA.search(first) else first
    called = ", ".join(f"`{n}`" for n in names)
    parts = [
        f"# {cls.__name__}",
        f"{called} · `rood.{kind_of(kind)}.{cls.__name__}`",
        said["words"],
    ]
    parts += ["## Formula", formula, *rest, "## When to use it", said["use"]]
    parts += ["## Cost", *_cost(cls, entries)] if kind == "detectors" else []
    if options := _options(cls):
        parts += ["## Options", table(["option", "default"], options)]
    if kind == "detectors" and (found := list(_measured(names))):
        parts += ["## Measured", MEASURED, table(HEAD, found)]
    return "\n\n".join(parts) + "\n"


def _said(kind: str, file: str) -> dict[str, str]:
    if file not in TEXT[kind]:
        raise SystemExit(f"expected [{kind}.{file}] with `words` and `use` in tools/cards.toml")
    return TEXT[kind][file]


def kind_of(kind: str) -> str:
    """The package under rood."""
    return "training.objectives" if kind == "objectives" else kind


def _options(cls: Any) -> list[list[str]]:
    parameters = inspect.signature(cls.__init__).parameters.values()
    own = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    return [[f"`{p.name}`", "" if p.default is p.empty else f"`{_short(p.default)}`"] for p in own]


def _short(value: object) -> str:
    return "1/255" if value == 1 / 255 else repr(value)


def _cost(cls: Any, entries: list[Any]) -> Iterator[str]:
    passes: dict[str, list[str]] = {}
    for entry in entries:
        passes.setdefault(f"{entry.cost} per image", []).append(f"`{entry.name}`")
    several = len(passes) > 1
    named = [f"{', '.join(n)}: {p}" if several else p for p, n in passes.items()]
    if any(n in inspect.signature(cls.__init__).parameters for n in ("base", "members")):
        fit = "Fitting it fits what it wraps."
    elif cls.fitted_names:
        fit = f"Fitted on ID images{' with labels' if cls.needs_labels else ''}."
    else:
        fit = "Nothing to fit."
    gradient = entries[0].gradient.replace("_", " ")
    yield f"Passes of the network: {'; '.join(named)}. {fit} Gradient: {gradient}."


HEAD = ["name", "near OOD, clean", "far OOD, clean", "both sides attacked, 8/255"]
MEASURED = (
    "AUROC in per cent, on ResNet-18s trained on CIFAR-10 with cross-entropy (near: CIFAR-100 and Tiny ImageNet; far: SVHN, "
    "textures, scenes, MNIST): [all detectors and conditions](../../evidence/detectors.md)."
)


def _measured(names: list[str]) -> Iterator[list[str]]:
    for name in names:
        if found := measured.known().get(name):
            attacked = "–" if found.attacked is None else f"{found.attacked:.1f}"
            yield [f"`{name}`", f"{found.near:.1f}", f"{found.far:.1f}", attacked]
