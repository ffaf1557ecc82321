"""JUnit files that servers for continuous integration can read, whatever names are in them."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from one_row import ROW

from rood.evaluation.gate import Missing
from rood.report.junit import junit


def read(*rows, bar=None, missing=()):
    (suite,) = ElementTree.fromstring(junit(rows, bar, missing))
    failures = [f.get("message") for f in suite.iter("failure")]
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    assert int(suite.get("failures")) == len(failures)
    return suite, failures


def test_each_number_with_both_sides_attacked_is_a_test_case():
    clean, fpr = replace(ROW, side="none"), replace(ROW, metric="fpr_at_tpr_in")
    suite, failures = read(clean, fpr, ROW)
    (case,) = suite
    assert (case.get("classname"), case.get("name")) == ("net.msp", "svhn, pgd linf:0.1")
    assert failures == []


@pytest.mark.parametrize("value", [0.71, float("nan")])
def test_a_number_below_the_bar_fails_with_its_interval(value):
    _, (said,) = read(replace(ROW, value=value), bar=0.8)
    assert said == (
        f"AUROC {value:.3f} (95 % interval 0.650 to 0.770), both sides attacked: below 0.8"
    )
    assert read(ROW, bar=0.7)[1] == []


def test_a_number_that_cannot_be_believed_fails_without_a_bar():
    (said,) = read(replace(ROW, verdict="fail"))[1]
    assert "the attack failed its own checks" in said


def test_what_was_not_attacked_fails():
    suite, failures = read(ROW, missing=[Missing("net", "vim")])
    assert failures == ["not attacked"]
    assert len(suite) == 2


def test_names_cannot_break_the_file():
    suite, _ = read(replace(ROW, dataset="<a & 'b'>\x00\x1b\ud800", detector="m\u200bsp"))
    assert suite[0].get("name").startswith("<a & 'b'>\ufffd\ufffd\ufffd")
