"""The settings file of an audit, from `AuditSettings` and the help of the options: schema, table."""

import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import typer.main

from rood import attacks, detectors
from rood.cli import app
from rood.evaluation.prepare import TIERS
from rood.evaluation.settings import KEYS, OF_ATTACK, AuditSettings
from tools.markdown import table

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
# what no option says, as only a file can hold it
HELP = {
    "attacks": "Whether to attack; false: only certify, as `rood certify` does.",
    "certify": "Add lower bounds that no attack can get below: crown, ibp, crown-ibp or alpha.",
    "options": "Options of detectors, by the detector's name: [options.knn] with k = 50.",
    "attack_options": "Options of the attack that are no options of the command, such as step.",
}
OWN = {"tier": str, "steps": int, "restarts": int}  # keys of the attack


def fields() -> Iterator[tuple[str, Any, Any, str]]:
    """Key, type, default and meaning of every setting that a file may hold."""
    says = helps()
    defaults = AuditSettings()
    for name, hint in typing.get_type_hints(AuditSettings).items():
        key = KEYS.get(name, name)
        if key == "attack_options":
            for own in OF_ATTACK:
                yield own, OWN[own], None, says[own]
        if key != "trust":
            yield key, hint, getattr(defaults, name), HELP.get(key) or says[key]


def helps() -> dict[str, str]:
    """The help of every option of `rood audit`, by the key that it has in a file."""
    command = typer.main.get_command(app).commands["audit"]
    options = [p for p in command.params if p.param_type_name == "option"]
    return {
        name.removeprefix("--").replace("-", "_"): p.help
        for p in options
        for name in p.opts
        if p.help
    }


def schema() -> str:
    """docs/reference/audit.schema.json, for editors that know JSON schemas of TOML."""
    properties = {}
    for key, hint, default, help_ in fields():
        about = _type(hint) | {"description": help_}
        if enum := names(key):
            about.get("items", about)["enum"] = enum
        if default is not None:
            about["default"] = default
        properties[key] = about
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of rood audit",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    return json.dumps(whole, indent=2) + "\n"


def names(key: str) -> list[str]:
    """The values that a key may have, where there are only so many."""
    return {
        "tier": [*TIERS],
        "attack": [*attacks.registry.names(), *TIERS],
        "detectors": [*detectors.registry.names(), "all"],
    }.get(key, [])


def _type(hint: Any) -> dict[str, Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (hint,) = (a for a in args if a is not type(None))
        return _type(hint)
    if origin is tuple:
        return {"type": "array", "items": _type(args[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(args[1])}
    return {"type": PLAIN[hint]} if hint in PLAIN else {}


def page() -> str:
    """docs/reference/settings.md."""
    rows = []
    for key, hint, default, help_ in fields():
        option = "" if key in HELP else f"`--{key.replace('_', '-')}`"
        rows.append([f"`{key}`", _word(_type(hint)), _shown(default), help_, option])
    return f"""# Settings file

`rood audit audit.toml` reads its settings from a TOML file; options given beside it override them. Keys are called as the options. Unknown
keys and values of another type are refused. A file cannot trust itself: `--trust` stays on the command line.

```toml
model = ["my.safetensors"]
inside = "folder:val"
detectors = ["msp", "knn"]
eps = ["1/255", "8/255"]
tier = "standard"

[outside]
dtd = "folder:dtd"

[options.knn]
k = 50
```

`rood audit ... --write-config audit.toml` writes all settings of a command. [audit.schema.json](audit.schema.json) is their JSON schema: an
editor completes and checks the keys where the file begins with `#:schema audit.schema.json`.

{table(["key", "type", "default", "meaning", "option"], rows)}
"""


def _word(about: dict[str, Any]) -> str:
    if about.get("type") == "array":
        return f"list of {_word(about['items'])}s"
    if about.get("type") == "object":
        return "table"
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(
        about.get("type", ""), about.get("type", "value")
    )


def _shown(default: Any) -> str:
    return "" if default in (None, "", (), {}) else f"`{json.dumps(default)}`"
