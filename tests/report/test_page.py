"""The page as a whole: what it says, in which order, and that nothing leaves it."""

import doctest
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from page_text import Text
from report_folder import row

from rood.evaluation.store import Contents
from rood.report import page as page_module
from rood.report import write_report
from rood.report.page import render

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("report*.txt")), ids=lambda p: p.stem)
def test_the_visible_text_is_the_golden_one(golden: Path, page: Text, hostile: Text) -> None:
    """Make the files anew with ROOD_REGENERATE=1 pytest tests/report, and read the diff."""
    text = (hostile if "hostile" in golden.stem else page).text + "\n"
    if os.environ.get("ROOD_REGENERATE"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_the_page_is_about_everything_in_its_order(page: Text) -> None:
    headings = [attrs.get("id") for tag, attrs in page.tags if tag == "h2"]
    names = "fall findings networks views eps scores gallery flags record"
    assert [i for i in headings if i] == [f"h-{name}" for name in names.split()]
    for words in (
        "Do not trust",
        "a coin toss",
        "97.4 %",
        "change × 5",
        "by a hash of the image",
    ):
        assert words in page.text
    assert "some new check" in page.text
    assert "was rejected, now accepted" in page.text
    assert "still rejected" in page.text
    assert "unfinished" not in page.text


def test_headings_do_not_skip_a_level_and_the_page_has_landmarks(page: Text) -> None:
    tags = page.tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in tags}
    assert ("html", {"lang": "en"}) in tags
    assert all(attrs.get("alt") for tag, attrs in tags if tag == "img")


def test_nothing_comes_from_outside(page: Text, hostile: Text) -> None:
    for tags in (page.tags, hostile.tags):
        links = [
            (t, a[k] or "") for t, a in tags for k in ("src", "href", "srcset", "data") if k in a
        ]
        assert links
        assert all(link.startswith(("#", "data:image/png;base64,")) for _, link in links)
        assert not {"link", "iframe", "object", "embed", "base", "form"} & {t for t, _ in tags}
    # plotly speaks of its maps
    own = re.sub(r"<script>.*?</script>", "", page.html, count=1, flags=re.S)
    assert not re.search(r"(url\(|@import|src=.?|href=.?)\s*['\"]?\s*(https?:)?//", own)


def test_the_policy_allows_only_the_scripts_that_are_there(page: Text) -> None:
    policy = next(a["content"] for t, a in page.tags if "http-equiv" in a) or ""
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    scripts = policy.split("script-src")[1].split(";")[0]
    assert "unsafe" not in scripts


def test_hostile_names_are_only_text(hostile: Text) -> None:
    assert [t for t, _ in hostile.tags].count("script") == 3
    assert not any(key.startswith("on") for _, attrs in hostile.tags for key in attrs)
    assert "b" not in [t for t, a in hostile.tags if not a]
    assert "<script>window.hacked = true</script></script>" in hostile.text
    assert "{{ 7 * 7 }}" in hostile.text
    assert "\u202e" not in hostile.text.split("Manifest:")[0]


def test_the_same_folder_gives_the_same_bytes(folder: Path) -> None:
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert not list(folder.glob("*.part"))


def test_the_example_of_the_docstring_runs() -> None:
    assert doctest.testmod(page_module).failed == 0


def test_no_torch_is_imported(folder: Path) -> None:
    code = (
        "import sys, pathlib; from rood.report import write_report; "
        f"write_report(pathlib.Path({str(folder)!r})); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=_environment()).returncode == 0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_large_audit_stays_small_and_keeps_its_strongest_attacks() -> None:
    rows = [
        row(model=f"m{m}", detector=f"d{d}", dataset=f"s{s}", metric=metric, value=0.5, **attack)
        for m in range(2)
        for d in range(20)
        for s in range(4)
        for metric in ("auroc", "aupr_in", "fpr95_in", "fpr95_out", "detection_error")
        for attack in [
            {},
            *(
                {"scenario": f"pgd linf:{e}/255", "side": side, "verdict": "pass"}
                for e in (1, 2, 4, 8)
                for side in ("inside", "outside", "both")
            ),
        ]
    ]
    text = render(Contents(tuple(rows)))
    assert len(text.encode()) < 8_000_000
    assert "Every detector on every network falls under attack." in text
