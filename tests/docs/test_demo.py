"""`make demo` says in one sentence that Python is too old, before it makes an environment."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# a Python that says it is 3.10; asked for anything but a line of code, it fails
OLD = """#!/bin/sh
[ "$1" = -c ] || exit 99
exec {python} -c 'import sys; sys.version_info = (3, 10, 4); exec(sys.argv[1])' "$2"
"""


@pytest.fixture
def checkout(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "old").write_text(OLD.format(python=sys.executable))
    (tmp_path / "old").chmod(0o755)
    return tmp_path


def demo(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "demo", f"PYTHON={checkout / 'old'}"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def test_an_old_python_is_refused_and_nothing_is_made(checkout):
    done = demo(checkout)
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert first.startswith("expected Python 3.11 or newer, got 3.10: ")
    assert first.endswith("make demo PYTHON=python3.12")
    assert not (checkout / ".venv").exists()


def test_an_environment_of_an_old_python_is_refused_too(checkout):
    (checkout / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(checkout / "old", checkout / ".venv" / "bin" / "python")
    done = demo(checkout)
    assert done.stderr.startswith("expected Python 3.11 or newer, got 3.10: remove .venv")
    assert not (checkout / ".venv" / ".demo").exists()
