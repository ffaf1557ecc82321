"""The site builds from its pages without a warning; `make docs` also runs the tutorials."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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


def test_the_pages_that_the_site_fills_in_exist():
    """Links to README, CHANGELOG and others lead to these pages on the site."""
    text = (ROOT / "docs" / "conf.py").read_text()
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith('    "project/')]
    assert len(names) == 5
    for name in names:
        page = ROOT / "docs" / f"{name}.md"
        assert page.read_text().startswith("The text of this page is ["), page
