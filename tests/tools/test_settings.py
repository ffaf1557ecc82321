"""The schema and the page of settings files are about what `rood audit` reads."""

import json
import tomllib
from dataclasses import replace

from rood.evaluation.settings import AuditSettings, read_settings
from tools import settings

KINDS = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict}
SCHEMA = json.loads(settings.schema())


def fits(value, about):
    if about.get("type") == "array":
        return isinstance(value, list) and all(fits(v, about["items"]) for v in value)
    right = isinstance(value, KINDS[about["type"]]) if "type" in about else True
    return right and value in about.get("enum", [value])


def test_what_is_written_fits_the_schema():
    full = replace(
        AuditSettings(),
        weights="w.pth",
        mean=(0.5,),
        size="32",
        inside="folder:x",
        outside={"a": "folder:y"},
        options={"knn": {"k": 5}},
        attack="standard",
        attack_options={"tier": "full", "step": 0.1},
        limit=None,
        batch_size=8,
    )
    for one in (AuditSettings(), full):
        written = tomllib.loads(one.to_toml())
        assert len(written) >= 7
        for key, value in written.items():
            assert fits(value, SCHEMA["properties"][key]), key


def test_the_schema_and_the_reader_know_the_same_keys(tmp_path):
    assert SCHEMA["additionalProperties"] is False
    assert "trust" not in SCHEMA["properties"]
    path = tmp_path / "audit.toml"
    for key, about in SCHEMA["properties"].items():
        assert about["description"]
        usual = {"array": [], "string": "10m", "integer": 1, "boolean": True, "object": {}}
        first = about.get("enum", [usual[about["type"]]])[0]
        path.write_text(f"{key} = {'{}' if first == {} else json.dumps(first)}")
        read_settings(path)  # refuses unknown keys and other types


def test_the_page_lists_every_key():
    page = settings.page()
    assert all(f"\n| `{key}` |" in page for key in SCHEMA["properties"])
