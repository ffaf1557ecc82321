"""Names and numbers as a reader sees them."""

import math

from rood.report.words import percent, plot_text, shown


def test_names_become_one_harmless_line() -> None:
    assert shown("a\nb\t c\u2028d\u202ee\x00") == "a b c d\ufffde\ufffd"
    assert shown("x" * 500) == "x" * 119 + "…"
    assert plot_text("<b>&") == "&lt;b&gt;&amp;"


def test_small_shares_do_not_vanish() -> None:
    assert percent(0.0) == "0.0\u00a0%"
    assert percent(0.0001) == "<\u00a00.1\u00a0%"
    assert percent(math.nan) == "–"
