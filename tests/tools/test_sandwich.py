"""The figure of the sandwich: rows in their order, which the README repeats."""

from pathlib import Path

import pytest

from rood.evaluation.rows import Row
from rood.evaluation.store import read_lines
from tools import sandwich

README = Path(sandwich.__file__).parents[1] / "README.md"


def lines():
    return sandwich.layers(list(read_lines(sandwich.ROWS, Row)))


def test_clean_attacked_and_certified_are_in_order_at_every_budget():
    assert [eps for eps, *_ in lines()] == [0.02, 0.05, 0.1]
    for _, clean, attacked, certified in lines():
        assert clean.value >= attacked.value >= certified.value
        assert {(r.n_in, r.n_out) for r in (clean, attacked, certified)} == {(40, 40)}


def test_the_readme_says_what_the_rows_say():
    values = [[f"{row.value:.3f}" for row in rows] for _, *rows in lines()]
    clean, attacked, certified = zip(*values, strict=True)
    said = [f"clean {clean[0]} at each"]
    for name, found in (("attacked", attacked), ("certified", certified)):
        said.append("{} {}, {} and {}".format(name, *found))
    assert "; ".join(said) in README.read_text()


def test_the_figure_is_drawn_from_the_rows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sandwich, "OUT", tmp_path / "sandwich.png")
    sandwich.main()
    assert (tmp_path / "sandwich.png").stat().st_size > 10_000
