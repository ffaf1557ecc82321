"""Every code block of README and docs runs, or at least names what exists.

Python blocks of a page run in their order, in an empty folder, with the names of `WORLD`. Shell
blocks are parsed by the real application. A comment before a block may say otherwise:

<!-- not run: REASON -->    skip it
<!-- needs: MODULE -->      run it where MODULE can be imported
<!-- setup: CODE -->        Python to run first, which the reader has done elsewhere
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from libraries import imported
from typer.main import get_command

from rood.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "papers/README.md", "zoo/README.md"]
PAGES += sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(
    r"(?:^<!--\s*(?P<mark>[\w ]+):\s*(?P<said>.*?)\s*-->\n+)?"
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
PROSE = {"text", "{toctree}", "{eval-rst}", "{figure}", "{image}", "{note}", "{warning}", "{tip}"}
# commands of others; their arguments are not ours to check
OTHERS = {"cd", "cp", "do", "done", "export", "for", "git", "mkdir", "openssl", "ray", "sleep"}
OTHERS |= {"srun", "rm"}
# pages that audit with the default attack
SLOW = {"docs/tutorials/timm.md", "docs/how-to/other-libraries.md", "docs/how-to/own-detector.md"}
# what every page may use: the digits' network, and a few random images of its shape
WORLD = """
import torch, rood
from rood import data
from pathlib import Path
model = rood.zoo.load("digits-ce")
_g = torch.Generator().manual_seed(0)
x_in = torch.rand(80, 1, 28, 28, generator=_g)
x_out = torch.rand(40, 1, 28, 28, generator=_g).round()
x = x_in[:4]
train = data.ImageSet("train", torch.rand(240, 1, 28, 28, generator=_g), torch.arange(240) % 6)
validation = data.ImageSet("validation", torch.rand(60, 1, 28, 28, generator=_g))
batches = list(train.batches(120))
"""


class Block(NamedTuple):
    mark: str  # of the comment before it
    said: str
    language: str
    code: str


def blocks(text: str) -> list[Block]:
    found = (m.groupdict() for m in BLOCK.finditer(text))
    return [
        Block(b["mark"] or "", b["said"] or "", b["language"].strip(), b["code"]) for b in found
    ]


def runnable(page: str) -> list[Block]:
    every = blocks((ROOT / page).read_text(encoding="utf-8"))
    return [b for b in every if b.mark != "not run"]


# tests/test_layout.py runs that of the README and reads what it prints
PYTHON = [p for p in PAGES[1:] if any(b.language == "python" for b in runnable(p))]
SHELL = [p for p in PAGES if any(b.language in ("sh", "bash") for b in runnable(p))]
NOTEBOOKS = [p for p in PAGES if any(b.language == "{code-cell}" for b in runnable(p))]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language_and_a_reason_not_to_run(page):
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        known = {"python", "sh", "bash", "toml", "yaml", "json", "{code-cell}"} | PROSE
        assert block.language in known, f"{page}: {block.language!r}: {block.code[:60]}"
        assert block.mark in ("", "not run", "needs", "setup"), (page, block.mark)
        assert block.mark != "not run" or len(block.said.split()) > 3, f"{page}: say why"
        if block.language == "toml":
            tomllib.loads(block.code)
        if block.language == "yaml":
            list(yaml.safe_load_all(block.code))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow if p in SLOW else ()) for p in PYTHON]
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    exec(WORLD, names)
    for block in (b for b in runnable(page) if b.language == "python"):
        code = compile(block.code, f"{page}: {block.code[:60]!r}", "exec")
        if block.mark == "needs" and imported(block.said)[0] is None:
            continue
        if block.mark == "setup":
            exec(block.said, names)
        exec(code, names)


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_tutorial_runs(page, tmp_path, monkeypatch):
    """As the site runs it, without a kernel: cells in their order, `!` and `%%sh` by the shell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in (b for b in runnable(page) if b.language == "{code-cell}"):
        if block.code.startswith("%%sh\n"):
            subprocess.run(block.code[5:], shell=True, check=True, cwd=tmp_path)
            continue
        parts = re.split(r"^!(.*)\n", block.code, flags=re.MULTILINE)
        for number, part in enumerate(parts):
            if number % 2:
                subprocess.run(part, shell=True, check=True, cwd=tmp_path)
            else:
                exec(compile(part, page, "exec"), names)


@pytest.mark.parametrize("page", SHELL)
def test_shell_blocks_name_what_exists(page):
    for block in (b for b in runnable(page) if b.language in ("sh", "bash")):
        for words in commands(block.code):
            check(words)


def commands(code: str) -> Iterator[list[str]]:
    """The commands of a block, one list of words each; comments and variables dropped."""
    for line in re.sub(r"\\\n|\$\([^)]*\)", " ", code).splitlines():
        words = shlex.split(line.rstrip("&"), comments=True)
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words:
            yield [w for w in words if w != "..."]


def check(words: list[str]) -> None:
    """Fail where a command, an option, a target, an extra or a file does not exist."""
    name, rest = Path(words[0]).name, words[1:]
    if name == "rood":
        parse(rest)
    elif name == "torchrun":
        check(rest[next(i for i, w in enumerate(rest) if w == "rood" or w.endswith(".py")) :])
    elif name == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(rest) <= set(targets), words
    elif name == "pip":
        for_pip(rest)
    elif name in ("python", "python3"):
        for_python(rest)
    elif name == "pytest":
        assert (ROOT / rest[0]).exists(), words
    else:
        assert name in OTHERS or name.endswith(".py"), f"no check for {words}"


def parse(words: list[str]) -> None:
    """By the application itself, without calling the command."""
    group = get_command(app)
    if words[:1] and words[0] in group.commands:
        group.commands[words[0]].make_context(f"rood {words[0]}", words[1:])
    else:
        assert words in (["--version"], ["--help"]), words


def for_pip(words: list[str]) -> None:
    """Extras and folders that are installed from a checkout."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert words[0] == "install", words
    for word in (w for w in words[1:] if not w.startswith("-")):
        path, _, wanted = word.partition("[")
        assert set(filter(None, wanted.rstrip("]").split(","))) <= set(extras), word
        if path.startswith("."):
            assert (ROOT / path / "pyproject.toml").exists(), word


def for_python(words: list[str]) -> None:
    """A module or a script of the repository."""
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None, words
    elif words[0] != "-c":
        assert (ROOT / words[0]).exists(), words


@pytest.mark.parametrize(
    "line",
    ["rood audit --no-such-option", "rood lst", "make nothing", "pip install '.[nothing]'"],
)
def test_a_mistake_in_a_shell_block_is_found(line):
    (words,) = commands(line)
    with pytest.raises(BaseException):  # noqa: B017  (typer's own, SystemExit, assertions)
        check(words)


def test_a_mark_belongs_to_the_next_block():
    text = "<!-- not run: needs a cluster here -->\n```sh\na\n```\n\n```python\nb\n```\n"
    assert [(b.mark, b.language) for b in blocks(text)] == [("not run", "sh"), ("", "python")]
