"""How far a run is, within tasks too."""

import itertools

import pytest
from toy_plan import toy_plan

from rood.attacks import PGD
from rood.evaluation.run import run
from rood.evaluation.steps import EVERY, UNDER_WAY, Meter


class Clock:
    """Time passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def meter(clock):
    found = Meter(100.0, lambda task: 50.0, lambda task: 200.0, lambda task: f"task {task}", clock)
    found.heard = []
    found.listeners.append(found.heard.append)
    return found


def test_listeners_hear_when_a_task_begins_and_now_and_then(meter, clock):
    meter.part("a", 0.0)
    for work in range(10):
        clock.now += EVERY / 4
        meter.part("a", float(work))
    assert [s.label for s in meter.heard] == ["task a"] * 3
    meter.part("b", 0.0)
    assert meter.heard[-1].label == "task b"


def test_work_only_grows_and_a_task_under_way_is_never_whole(meter, clock):
    for work in (0.0, 80.0, 196.0, 320.0):
        clock.now += 1
        meter.part("a", work)
    assert [s.done for s in meter.heard] == [0.0, 20.0, 49.0, UNDER_WAY * 50]
    meter.whole("a")
    assert (meter.reached(), meter.step().total) == (50.0, 100.0)


def test_a_task_is_compared_with_what_others_have_taken(meter):
    meter.part("a", 20.0)
    meter.whole("a")  # a tenth of what was expected
    meter.part("b", 10.0)
    assert meter.reached() == pytest.approx(75.0)


def test_a_run_tells_of_every_step_of_an_attack(case, tmp_path, monkeypatch):
    monkeypatch.setattr("rood.evaluation.steps.EVERY", 0.0)
    heard, steps = [], []
    for step in run(toy_plan(case, attack=PGD(steps=9), sides=("both",)), tmp_path):
        if not steps:
            step.meter.listeners.append(heard.append)
        steps.append(step)
    shares = [s.done / s.total for s in heard]
    assert shares == sorted(shares)
    assert steps[-1].done == pytest.approx(steps[-1].total)
    for label in ("model: msp, grey, linf:0.05", "model: knn, inside, linf:0.05"):
        assert sum(s.label == label for s in heard) > 20
    # between two tasks, and by small steps
    assert max(b - a for a, b in itertools.pairwise(shares)) < 0.2
