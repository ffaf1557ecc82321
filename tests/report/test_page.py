"""The report's page: what it shows, and what it makes of folders that are hostile or half there."""

import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_folder import build, row
from safetensors.numpy import save_file

from rood.evaluation.store import Contents
from rood.report import write_report
from rood.report.page import render
from rood.report.templating import embedded

GOLDEN = Path(__file__).parent / "golden"


class Text(HTMLParser):
    """The visible words of a page, its elements, and its embedded data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["script"]:
            self.scripts.append(data)
        elif not self._inside and data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    @property
    def figures(self) -> dict[str, Any]:
        """The figures as the page's script puts them together."""
        figures = json.loads(self.scripts[0])
        for figure in figures.values():
            figure["drawings"] = _whole(figure["drawings"], figure["styles"])
        return figures


def _whole(node: Any, styles: list[dict[str, Any]]) -> Any:
    if isinstance(node, list):
        return [_whole(item, styles) for item in node]
    if not isinstance(node, dict):
        return node
    own = {key: _whole(value, styles) for key, value in node.items() if key != "like"}
    return styles[node["like"]] | own if "like" in node else own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Text:
    path = build(tmp_path_factory.mktemp("hostile"), hostile=True)
    return Text(write_report(path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("report*.txt")), ids=lambda p: p.stem)
def test_the_visible_text_is_the_golden_one(golden: Path, page: str, hostile: Text) -> None:
    """Make the files anew with ROOD_REGENERATE=1 pytest tests/report, and read the diff."""
    text = (hostile if "hostile" in golden.stem else Text(page)).text + "\n"
    if os.environ.get("ROOD_REGENERATE"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_the_page_is_about_everything_in_its_order(page: str) -> None:
    parsed = Text(page)
    headings = [attrs["id"] for tag, attrs in parsed.tags if tag == "h2"]
    names = "findings networks fall eps scores gallery flags fixed record"
    assert headings == [f"h-{name}" for name in names.split()]
    for words in (
        "Do not trust",
        "a coin toss",
        "97.4 %",
        "change × 5",
        "by a hash of the image",
    ):
        assert words in parsed.text
    assert "some new check" in parsed.text
    assert "was rejected, now accepted" in parsed.text
    assert "still rejected" in parsed.text
    assert "unfinished" not in parsed.text


def test_headings_do_not_skip_a_level_and_the_page_has_landmarks(page: str) -> None:
    tags = Text(page).tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in tags}
    assert ("html", {"lang": "en"}) in tags
    assert all(attrs.get("alt") for tag, attrs in tags if tag == "img")


def test_nothing_comes_from_outside(page: str, hostile: Text) -> None:
    for tags in (Text(page).tags, hostile.tags):
        links = [
            (t, a[k] or "") for t, a in tags for k in ("src", "href", "srcset", "data") if k in a
        ]
        assert links
        assert all(link.startswith(("#", "data:image/png;base64,")) for _, link in links)
        assert not {"link", "iframe", "object", "embed", "base", "form"} & {t for t, _ in tags}
    own = re.sub(
        r"<script>.*?</script>", "", page, count=1, flags=re.S
    )  # plotly speaks of its maps
    assert not re.search(r"(url\(|@import|src=.?|href=.?)\s*['\"]?\s*(https?:)?//", own)


def test_the_policy_allows_only_the_scripts_that_are_there(page: str) -> None:
    policy = next(a["content"] for t, a in Text(page).tags if "http-equiv" in a) or ""
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


def test_figure_texts_hold_no_markup_of_others(hostile: Text) -> None:
    texts: list[str] = []

    def collect(node: object, key: str = "") -> None:
        if isinstance(node, dict):
            for k, v in node.items():
                collect(v, k)
        elif isinstance(node, list):
            for item in node:
                collect(item, key)
        elif isinstance(node, str) and key in ("name", "text", "ticktext"):
            texts.append(node)

    for figure in hostile.figures.values():
        collect(figure["layout"])
        for drawing in figure["drawings"].values():
            collect([drawing["data"], drawing["layout"]])
    assert texts
    assert not any("<" in text for text in texts)


def test_embedded_json_cannot_end_its_element_and_has_no_nan() -> None:
    value = {"</script>": ["<!--", "&", "\u2028\u2029", math.nan, -math.inf, (1.5,)]}
    text = embedded(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"</script>": ["<!--", "&", "\u2028\u2029", None, None, [1.5]]}


def test_the_same_folder_gives_the_same_bytes(folder: Path) -> None:
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert not list(folder.glob("*.part"))


def test_histograms_count_every_tested_image_once_and_none_that_set_the_threshold(
    page: str,
) -> None:
    drawing = Text(page).figures["scores"]["drawings"]["0.0.0.0"]
    assert len(drawing["data"]) == 4
    for trace in drawing["data"]:
        assert sum(trace["y"]) == pytest.approx(1, abs=0.01)
        assert trace["x0"] + trace["dx"] * len(trace["y"]) < 20  # the threshold's images lie at 50
    assert drawing["layout"]["shapes"][0]["x0"] == 1.64
    assert "of OOD images" in drawing["summary"]


def test_the_curves_begin_with_the_clean_number(page: str) -> None:
    lines = Text(page).figures["eps"]["drawings"]["0.0.0"]["data"]
    assert [line["x"] for line in lines] == [[0.0, 0.02, 0.05, 0.1]] * 4
    assert all(line["y"][0] > 0.9 and line["y"][-1] < 0.2 for line in lines)


def test_no_torch_is_imported(folder: Path) -> None:
    code = (
        "import sys, pathlib; from rood.report import write_report; "
        f"write_report(pathlib.Path({str(folder)!r})); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=_environment()).returncode == 0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_colour_images_and_large_ones_are_shown(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    for channels, size in ((3, 32), (3, 300), (2, 16), (4, 16)):
        image = np.full((2, channels, size, size), 0.5, np.float32)
        tensors = {
            "original": image,
            "attacked": image + 0.01,
            "before": np.ones(2),
            "after": np.ones(2),
        }
        save_file(tensors, tmp_path / "examples" / f"{channels}-{size}.safetensors")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert page.count('alt="original"') == 8
    assert "change × 50" in page


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
    page = render(Contents(tuple(rows)))
    assert len(page.encode()) < 8_000_000
    assert "Every detector on every network falls under attack." in page
