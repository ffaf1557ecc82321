"""What passes a gate: believed numbers that are not below a limit, and none that is missing."""

import math
import pickle
from dataclasses import replace

import pytest
from one_row import ROW

from rood.errors import ResultsError
from rood.evaluation.gate import Missing, failure, not_attacked, worst, worst_of_each

HIGH = replace(ROW, dataset="dtd", value=0.9)
NAN = replace(ROW, value=math.nan)
UNBELIEVED = replace(HIGH, verdict="fail")


def test_the_worst_number_is_a_number_that_says_where_it_is_from():
    clean, fpr, one = (
        replace(ROW, value=0.1, **c)
        for c in ({"side": "none"}, {"metric": "fpr95_in"}, {"side": "outside"})
    )
    found = worst([clean, fpr, one, HIGH, ROW])
    assert found == 0.71
    assert repr(found) == (
        "0.710 (net msp on svhn, pgd linf:0.1: AUROC 0.710 (95 % interval 0.650 to 0.770), both "
        "sides attacked)"
    )
    assert pickle.loads(pickle.dumps(found)).row == ROW


@pytest.mark.parametrize("rows", [[ROW, UNBELIEVED], [ROW, NAN]])
def test_what_cannot_be_believed_passes_no_limit(rows):
    found = worst(rows)
    assert not found > 0.0
    assert not found >= 0.0
    assert found.row == rows[1]
    assert repr(found).startswith("nan (net msp on ")


def test_what_was_not_attacked_passes_no_limit():
    found = worst([ROW], [Missing("net", "vim")])
    assert not found > 0.0
    assert repr(found) == "nan (net vim: not attacked)"
    assert pickle.loads(pickle.dumps(found)).missing == "net vim"


def test_without_an_attack_there_is_no_worst():
    with pytest.raises(ResultsError, match="expected an AUROC with both sides attacked"):
        worst([replace(ROW, side="none")])


def test_a_failure_says_why():
    assert failure(ROW, 0.7) == failure(ROW, None) == ""
    assert failure(ROW, 0.8).endswith("both sides attacked: below 0.8")
    assert failure(NAN, 0.0).endswith("below 0")
    assert "failed its own checks" in failure(UNBELIEVED, 0.0)


def test_of_each_detector_that_passes_least_is_told():
    other = replace(HIGH, detector="knn")
    assert worst_of_each([HIGH, ROW, other], 0.7) == [ROW, other]
    assert worst_of_each([ROW, UNBELIEVED], 0.7) == [UNBELIEVED]


def test_the_manifest_says_what_should_have_been_attacked():
    manifest = {"settings": {"detectors": {"net": {"msp": {}, "vim": {}}}}}
    assert not_attacked([ROW], manifest) == [Missing("net", "vim")]
    late = manifest | {"time": {"dropped": ["knn"], "left_out": [["msp", "linf:0.1"]]}}
    assert {m.detector for m in not_attacked([ROW], late)} == {"knn", "msp", "vim"}
    for damaged in (None, {}, {"settings": 3}, {"settings": {"detectors": []}}):
        assert not_attacked([ROW], damaged) == []
