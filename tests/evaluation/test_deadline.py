"""Times as people write them, and what is said of what did not fit."""

import pytest

from rood.errors import InputError
from rood.evaluation.deadline import Deadline, seconds, too_short


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_time_is_a_number_and_a_unit(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["10", "m", "-3s", "0s", "ten minutes", ""])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="expected a time such as 90s, 10m or 2h"):
        seconds(text)


def test_a_deadline_keeps_time_for_the_page_and_some_more_for_what_has_begun():
    deadline = Deadline("100s", begun=1000.0, clock=lambda: 1040.0)
    assert deadline.left() == pytest.approx(55.0)
    assert deadline.grace() == pytest.approx(70.0)
    assert Deadline("10s", 0.0, lambda: 0.0).left() == pytest.approx(9.0)


def test_what_was_left_out_is_one_sentence():
    assert too_short("3m", []) == ""
    found = too_short("3m", [("knn", "linf:0.05"), ("vim", ""), ("knn", "l2:1")])
    assert found.startswith("3m is too short to attack knn (linf:0.05, l2:1), vim: give more time")
