"""How a run ends is told apart: refused, a traceback, a hang, killed."""

import os
import signal
import sys
import time
import warnings

import pytest

from campaign.forked import Ending, command, forked, shared_out
from rood.errors import InputError


def refuse():
    raise InputError("expected one, got two")


def silent():
    sys.exit(1)


def said():
    print("error: no", file=sys.stderr)
    sys.exit(1)


def ignored():
    print("Exception ignored in: <stdout>")


def warned():
    warnings.warn("about nothing", stacklevel=1)
    return 7


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (lambda: [1, "a"], "value"),
        (refuse, "refused"),
        (said, "refused"),
        (silent, "traceback"),
        (ignored, "traceback"),
        (lambda: sys.exit(0), "value"),
        (lambda: sys.exit(120), "traceback"),
        (lambda: {}["x"], "traceback"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed"),
        (warned, "value"),
        (lambda: command(["no-such-command"]), "refused"),
    ],
)
def test_the_end_of_a_run(function, how):
    assert forked(function).how == how


def test_a_process_without_stdout_ends_as_any_other():
    def closed():
        os.close(1)
        sys.stdout = None
        return 7

    assert forked(closed).value == 7


def test_only_a_value_and_a_refusal_are_not_counted_as_bad():
    kinds = ("value", "refused", "traceback", "killed", "hang")
    assert [Ending(k).bad for k in kinds] == ["", "", "traceback", "traceback", "hang"]


def test_what_takes_too_long_hangs():
    assert forked(lambda: time.sleep(60), limit=0.2).how == "hang"


def test_memory_is_counted_above_what_the_process_had():
    few, many = (forked(lambda n=n: len(b"x" * (n << 20))).memory for n in (1, 80))
    assert few < 40 << 20 < 75 << 20 < many


def test_work_is_shared_out_and_no_case_is_lost():
    assert sorted(shared_out(range(7), lambda i: i * i, 3)) == [i * i for i in range(7)]
    with pytest.raises(RuntimeError, match="a worker of the campaign has failed"):
        list(shared_out([1], lambda i: i / 0, 1))
