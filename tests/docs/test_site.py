"""The site builds from its pages without a warning; `make docs` also runs the tutorials."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("myst_nb", reason="needs rood[docs]")
    off = ["-D", "nb_execution_mode=off"]
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", *off]
    where = [str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    for section in ("install", "tutorials", "how-to", "understand", "reference", "evidence", "faq"):
        assert f'href="{section}' in home, section
    assert "http://" not in home.replace("http://www.w3.org", "")


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_longer_than_a_person_reads(page):
    """Tables and details that are opened by a click do not count."""
    text = re.sub(r"<details>.*?</details>", "", (DOCS / page).read_text(), flags=re.DOTALL)
    assert len(text.replace("|", " ").split()) < 1750


def test_the_pages_that_the_site_fills_in_exist():
    """Links to README, CHANGELOG and others lead to these pages on the site."""
    text = (ROOT / "docs" / "conf.py").read_text()
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith('    "project/')]
    assert len(names) == 5
    for name in names:
        page = ROOT / "docs" / f"{name}.md"
        assert page.read_text().startswith("The text of this page is ["), page
