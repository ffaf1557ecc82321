"""What a person sees of a run: a bar at a terminal, lines elsewhere, nothing where asked for."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from rood.evaluation.steps import Meter, Step
from rood.progress import LINES, _Estimate, drawn


class Clock:
    """Time passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def _lines_after_ten_seconds(monkeypatch):
    monkeypatch.setattr("rood.progress.FIRST", 10.0)


@pytest.fixture
def clock():
    return Clock()


def shown(steps, clock, console=None, **more):
    console = console or Console(file=io.StringIO(), width=200)
    passed = list(drawn(steps, "auditing", console=console, clock=clock, **more))
    return passed, console.file.getvalue()


def evenly(clock, n, seconds):
    """Steps at equal distances, which take so many seconds together."""
    for i in range(n + 1):
        yield Step(f"step {i}", i, n)
        clock.now += seconds / n


def test_a_run_of_a_few_seconds_prints_nothing(clock):
    passed, text = shown(evenly(clock, 50, 9), clock)
    assert (len(passed), text) == (51, "")


def test_a_line_says_how_far_how_long_how_long_still_and_what(clock):
    _, text = shown(evenly(clock, 10, 100), clock)
    first, second, *_ = text.splitlines()
    assert first == " 10%  0:00:10, 0:01:30 left  step 1"
    assert second == " 20%  0:00:20, 0:01:20 left  step 2"


@pytest.mark.parametrize("hours", [0.1, 1, 40])
def test_a_long_run_prints_about_thirty_lines(clock, hours):
    _, text = shown(evenly(clock, 5000, 3600 * hours), clock)
    assert 25 <= len(text.splitlines()) <= LINES + 1
    assert "\x1b" not in text


def test_steps_within_a_task_are_drawn_too(clock):
    meter = Meter(10.0, lambda _: 10.0, lambda _: 10.0, str, clock)

    def steps():
        yield meter.step("begins")
        for second in range(20):
            clock.now += 1
            meter.part("msp, near", second / 2)
        meter.whole("msp, near")
        yield meter.step("ends")

    passed, text = shown(steps(), clock)
    assert [s.label for s in passed] == ["begins", "ends"]
    assert text.splitlines()[0] == " 45%  0:00:10, 0:00:12 left  msp, near"


def test_nothing_is_drawn_where_it_is_not_wanted(clock):
    console = Console(file=io.StringIO(), force_terminal=True)
    passed, text = shown(evenly(clock, 10, 100), clock, console, quiet=True)
    assert (len(passed), text) == (11, "")
    assert shown(evenly(clock, 10, 100), clock, lines=False)[1] == ""


def test_a_terminal_shows_a_bar_with_the_time_left(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    seen = []
    for step in drawn(evenly(clock, 4, 400), "auditing", console=console, clock=clock):
        seen.append(step.label)
    text = console.file.getvalue()
    assert "100 %" in text
    assert "step 4" in text
    assert "0:00:00 left" in text


def test_the_time_left_is_estimated_as_soon_as_something_is_done_and_never_blank(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    _, text = shown([Step("first", 0, 10)], clock, console)
    assert "estimating the time left" in text
    assert "-:--:--" not in text


def test_the_time_left_counts_down_while_nothing_is_heard(clock):
    estimate = _Estimate(clock)
    for step in evenly(clock, 4, 40):
        estimate.see(step)
        if step.done == 2:
            break
    assert estimate.words() == "0:00:20 left"
    clock.now += 7
    assert estimate.words() == "0:00:13 left"
    clock.now += 100
    assert estimate.words() == "0:00:00 left"


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_shows_a_bar_with_ipywidgets_and_lines_without(clock, monkeypatch, widgets):
    found = SimpleNamespace() if widgets else None
    monkeypatch.setattr("rood.progress.find_spec", lambda name: found)
    drawings = []
    monkeypatch.setattr("rood.progress._bar", lambda steps, *_: drawings.append("bar") or steps)
    console = Console(force_jupyter=True, stderr=True)
    printed = []
    monkeypatch.setattr(console, "print", lambda line, **_: printed.append(line))
    passed = list(drawn(evenly(clock, 10, 100), console=console, clock=clock))
    assert len(passed) == 11
    assert bool(drawings) == widgets
    assert bool(printed) != widgets


def test_a_closed_stderr_does_not_end_a_run(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert len(list(drawn(evenly(clock, 10, 100), clock=clock))) == 11
