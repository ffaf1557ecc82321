"""docs/reference/cli/*.md: every command and option, from the typer application itself."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from rood.cli import app
from tools.markdown import table, texts

TEXT = texts("commands")
KINDS = {"int": "INTEGER", "float": "NUMBER", "Path": "PATH", "str": "TEXT"}


def pages() -> Iterator[tuple[str, str]]:
    """Each page's name and text."""
    group: Any = get_command(app)
    commands = {name: group.commands[name] for name in sorted(group.commands)}
    lines = [[f"[`rood {n}`]({n}.md)", _paragraphs(c.help)[0]] for n, c in commands.items()]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *commands, "```"])
    yield (
        "index.md",
        f"{TEXT['index'].format(table=table(['command', 'does'], lines))}\n{toctree}\n",
    )
    for name, command in commands.items():
        yield f"{name}.md", _page(name, command)


def _page(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    given = "".join(
        f" {p.name.upper()}" if p.required else f" [{p.name.upper()}]" for p in arguments
    )
    parts = [
        f"# rood {name}",
        f"```text\nrood {name} [OPTIONS]{given}\n```",
        *_paragraphs(command.help),
    ]
    if arguments:
        parts.append(
            table(["argument", "meaning"], ([f"`{p.name.upper()}`", _help(p)] for p in arguments))
        )
    kinds = inspect.signature(command.callback).parameters
    lines = ([_spelling(p, kinds[p.name].annotation), _help(p), _default(p)] for p in options)
    parts.append(table(["option", "meaning", "default"], lines))
    if more := TEXT["more"].get(name):
        parts.append(more.strip())
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(p.split()) for p in (text or "").split("\n\n")]


def _spelling(option: Any, annotation: object) -> str:
    names = ", ".join(f"`{n}`" for n in [*option.opts, *option.secondary_opts])
    kind = next((k for k in KINDS if re.search(rf"\b{k}\b", str(annotation))), "str")
    return names if option.is_flag else f"{names} {KINDS[kind]}"


def _help(parameter: Any) -> str:
    return " ".join((parameter.help or "").split()).replace("|", r"\|")


def _default(option: Any) -> str:
    value = option.default
    return "" if value is None or value is False or callable(value) else f"`{value}`"
