"""The summary of a CI job: the worst number of every detector, and no markup of a name."""

from dataclasses import replace

from one_row import ROW

from rood.evaluation.gate import Missing
from rood.report.summary import summary


def test_the_worst_number_of_every_detector_is_shown():
    better = replace(ROW, dataset="dtd", value=0.9)
    text = summary([better, ROW, replace(ROW, side="none", value=0.1)], bar=0.8)
    (line,) = [t for t in text.splitlines() if "msp" in t]
    assert line == ("| ❌ | net | msp | 0.710 (0.650 to 0.770) | svhn, pgd linf:0.1 | pass |")
    assert "✅" in summary([better], bar=0.8)


def test_a_number_that_is_not_believed_goes_before_a_lower_one():
    unbelieved = replace(ROW, dataset="dtd", value=0.99, verdict="fail")
    assert "dtd" in summary([ROW, unbelieved])


def test_what_was_not_attacked_has_a_line():
    assert "| ❌ | net | vim | not attacked |" in summary([ROW], missing=[Missing("net", "vim")])


def test_names_are_no_markup():
    text = summary([replace(ROW, detector="a|b<img>`*")])
    assert "a&#124;b&#60;img&#62;&#96;&#42;" in text
