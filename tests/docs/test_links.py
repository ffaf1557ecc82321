"""Every relative link of every Markdown page leads to a file, and to a heading of it."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(<?([^)\s>]+)")
CODE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1", re.MULTILINE | re.DOTALL)


def pages() -> list[str]:
    """The Markdown files that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [name for name in done.stdout.splitlines() if (ROOT / name).exists()]
    return found or [str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")]


def anchors(text: str) -> set[str]:
    """The headings of a page as GitHub and Sphinx name them, and targets set by hand."""
    headings = re.findall(r"^#+ +(.+?) *$", CODE.sub("", text), re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return named | set(re.findall(r"^\(([\w-]+)\)=", text, re.MULTILINE))


def dead(page: Path, link: str) -> bool:
    """Whether nothing is at the end of a relative link."""
    name, _, anchor = link.partition("#")
    target = page if not name else page.parent / name
    if not target.exists():
        return True
    return bool(anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()))


@pytest.mark.parametrize("name", pages())
def test_relative_links_lead_somewhere(name):
    page = ROOT / name
    links = LINK.findall(re.sub(r"`[^`\n]*`", "", CODE.sub("", page.read_text())))
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert not [link for link in local if dead(page, link)]


@pytest.mark.parametrize("link", ["lost.md", "#lost", "page.md#lost", "lost.png"])
def test_a_dead_link_is_seen(tmp_path, link):
    (tmp_path / "page.md").write_text("# A page\n\n```\n# lost\n```\n")
    assert dead(tmp_path / "page.md", link)
    assert not dead(tmp_path / "page.md", "page.md#a-page")
