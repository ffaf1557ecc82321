"""docs/project/architecture.md names files and functions that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "project" / "architecture.md").read_text(encoding="utf-8")
HOPS = re.findall(r"`((?:src|papers)/[\w/]+\.py)`: `(\w+)`", TEXT)


def test_every_path_is_walked():
    assert len(HOPS) > 30


@pytest.mark.parametrize(("file", "name"), HOPS)
def test_a_hop_is_a_function_or_class_of_its_file(file, name):
    code = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:def|class) {name}\b", code, re.MULTILINE), f"{name} in {file}"
