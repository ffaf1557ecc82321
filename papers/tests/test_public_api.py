"""The papers use rood's public API: every number of theirs can be made by anybody."""

import ast
from pathlib import Path

import pytest

import rood_papers

FILES = sorted(Path(rood_papers.__file__).parent.rglob("*.py"))


def private_imports(source):
    """What is imported from rood under a name that begins with an underscore."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "rood" and any(n.startswith("_") for n in rest):
                yield name


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name + "/" + p.name)
def test_no_private_name_of_rood_is_imported(path):
    assert [*private_imports(path.read_text())] == []


def test_private_imports_are_found():
    source = "import rood._files\nfrom rood.models import _x, zoo\nfrom rood_papers import _y\n"
    assert [*private_imports(source)] == ["rood._files", "rood.models._x"]
