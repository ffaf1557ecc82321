"""Figures: what is drawn, and that no text of theirs is markup."""

import numpy as np
import pytest
from page_text import Text
from report_folder import case, row

from rood.evaluation.store import Contents, Origin, SavedRadii
from rood.report.figures import fall, radius
from rood.report.numbers import CERTIFIED, Numbers


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


def test_histograms_count_every_tested_image_once_and_none_that_set_the_threshold(
    page: Text,
) -> None:
    drawing = page.figures["scores"]["drawings"]["0.0.0.0"]
    assert len(drawing["data"]) == 4
    for trace in drawing["data"]:
        assert sum(trace["y"]) == pytest.approx(1, abs=0.01)
        assert trace["x0"] + trace["dx"] * len(trace["y"]) < 20  # the threshold's images lie at 50
    assert drawing["layout"]["shapes"][0]["x0"] == 1.64
    assert "of OOD images" in drawing["summary"]


def test_the_curves_begin_with_the_clean_number(page: Text) -> None:
    lines = page.figures["eps"]["drawings"]["0.0.0"]["data"]
    assert [line["x"] for line in lines] == [[0.0, 0.02, 0.05, 0.1]] * 4
    assert all(line["y"][0] > 0.9 and line["y"][-1] < 0.2 for line in lines)


def test_a_proved_bound_lies_on_the_same_bar_as_clean_and_attacked() -> None:
    proved = {"metric": CERTIFIED, "scenario": "certified linf:0.1", "side": "both"}
    rows = [*case("msp", 0.95, 0.6), row(value=0.4, **proved), row(value=0.7, **proved)]
    rows[-1] = row(value=0.7, **proved | {"scenario": "certified linf:0.05"})
    (drawing,) = fall.figure(Numbers(rows)).drawings.values()
    bar, *dots = drawing["data"]
    assert bar["x"][:2] == [0.4, 0.95]
    assert {dot["name"]: dot["x"] for dot in dots} == {
        "clean": [0.95],
        "both attacked": [0.6],
        "certified": [0.4],
    }
    assert "certified 0.40" in drawing["summary"]


def saved_radii(dataset: str, role: str, radii: list[float]) -> SavedRadii:
    return SavedRadii(Origin("net", "msp", dataset, role, "crown linf:0.1"), np.array(radii))


def test_radii_are_counted_side_by_side_with_those_beyond_the_budget_in_a_bin_of_their_own() -> (
    None
):
    inside = saved_radii("inside", "inside", [0.0, 0.0, 0.05, 0.1])
    far, near = (saved_radii(n, "outside", r) for n, r in (("far", [0.1] * 2), ("near", [0.02])))
    drawn = radius.figure(Contents((), radii=(inside, far, near)), Numbers(()))
    ids, oods = drawn.drawings["0.0.0.0"]["data"]
    assert (ids["name"], oods["name"]) == ("ID", "OOD")
    assert (ids["y"][0], ids["y"][8], ids["y"][-1]) == (0.5, 0.25, 0.25)
    assert oods["y"][-1] == 1.0
    assert ids["x0"] + ids["dx"] * (len(ids["y"]) - 1) == pytest.approx(0.1 + ids["dx"] / 2)
    assert "ID: 50.0\u00a0% certain at all" in drawn.drawings["0.0.0.0"]["summary"]
    assert len(drawn.drawings) == 2


def test_a_page_without_certificates_has_no_histogram_of_radii(page: Text) -> None:
    assert "radius" not in page.figures
