"""A time limit leaves out whole detectors and budgets, the last first; by a clock of its own."""

from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from toy_plan import assert_same, carried_out, manifest, toy_plan

from rood.attacks import PGD
from rood.evaluation.deadline import PAGE, Deadline
from rood.evaluation.engines import Engine
from rood.evaluation.schedule import in_order
from rood.evaluation.store import Results
from rood.evaluation.tasks import Task
from rood.report import write_report
from rood.threat import L2, Linf

THREATS = [Linf(0.02), Linf(0.05)]


class Clock:
    """Time passes when an engine says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Slow(Engine):
    """Takes a second per unit of work, or more by detector; a tenth of a task at a time."""

    def __init__(self, clock, slower, most=None):
        self.clock, self.slower, self.most, self.did = clock, slower, most, []

    @contextmanager
    def opened(self, plan):
        def perform(tasks, meter):
            for task in tasks:
                if len(self.did) == self.most:
                    raise KeyboardInterrupt
                expected = task.weight(plan)
                for tenth in range(11):
                    meter.part(task, tenth * expected / 10)
                    if task.threat is not None:
                        self.clock.now += expected * self.slower.get(task.detectors[0], 1) / 11
                self.did.append(task)
                yield task, task.do(plan)

        yield perform


def seconds(plan, units):
    """A limit that so many units and half a smaller one fit into, with the page."""
    tasks = [
        Task(model="model", dataset="grey", detectors=(d,), threat=t, stop=20).weight(plan)
        for d in plan.detectors["model"]
        for t in reversed(THREATS)
    ]
    return sum(tasks[:units]) + 0.5 * min(tasks) + PAGE


@pytest.fixture(scope="module")
def plan(case):
    few = {"detectors": {"model": {n: case.detectors[n] for n in ("msp", "knn", "odin")}}}
    return toy_plan(case, threats=THREATS, attack=PGD(steps=1), batch_size=20, **few)


def limited(plan, units, out, slower=None, most=None, **more):
    """A run that has the time for some of the six units."""
    clock, asked = Clock(), f"{seconds(plan, units):.0f}s"
    about = {"time": {"asked": asked}}
    timed = replace(plan, deadline=Deadline(asked, 0.0, clock), about=about, **more)
    engine = Slow(clock, slower or {}, most)
    carried_out(timed, out, engine)
    return engine, {(r.detector, r.scenario) for r in Results(out).rows if r.side == "outside"}


def test_detectors_come_one_by_one_the_largest_budget_of_each_norm_first(plan):
    threats = [Linf(0.02), L2(0.3), Linf(0.05), L2(0.6), Linf(0.03)]
    two = {m: plan.detectors["model"] for m in ("a", "b")}
    plan = replace(plan, detectors=two, threats=threats, deadline=Deadline("1h", 0.0))
    found = [(m, d, str(t)) for m, d, t in in_order(plan)]
    assert found[:4] == [(m, "msp", t) for t in ("l2:0.6", "linf:0.05") for m in ("a", "b")]
    assert [d for _, d, _ in found] == ["msp"] * 10 + ["knn"] * 10 + ["odin"] * 10
    usual = in_order(replace(plan, deadline=None))
    assert sorted(map(str, usual)) == sorted(map(str, in_order(plan)))
    assert [m for m, _, _ in usual] == ["a"] * 15 + ["b"] * 15


def test_with_enough_time_the_rows_are_those_of_a_run_without_a_limit(plan, tmp_path):
    limited(plan, 6, tmp_path / "limited")
    carried_out(plan, tmp_path / "free")
    assert_same(tmp_path / "limited", tmp_path / "free")
    assert "notes" not in manifest(tmp_path / "limited")


@pytest.mark.parametrize("units", [4, 3, 2, 1])
def test_what_would_be_late_is_left_out_whole_and_said_once(plan, tmp_path, units):
    engine, there = limited(plan, units, tmp_path)
    order = [(d, f"pgd linf:{t}") for d in ("msp", "knn", "odin") for t in ("0.05", "0.02")]
    assert there == set(order[:units])
    assert engine.clock.now <= seconds(plan, units)
    (note,) = manifest(tmp_path)["notes"]
    assert note.startswith(f"{seconds(plan, units):.0f}s is too short to attack")
    assert ("odin" in note, "knn" in note) == (True, units < 4)
    clean = {r.detector for r in Results(tmp_path).rows if r.side == "none"} - {""}
    assert clean == {"msp", "knn", "odin"}  # what was measured completely stays
    assert len(list(tmp_path.glob("scores/**/*pgd*"))) == units
    write_report(tmp_path)


def test_what_takes_longer_than_expected_is_given_up_at_the_limit(plan, tmp_path):
    limit = seconds(plan, 4)
    engine, there = limited(plan, 4, tmp_path, slower={"knn": 30})
    assert {d for d, _ in there} == {"msp"}
    assert limit - PAGE <= engine.clock.now <= 1.2 * limit + seconds(plan, 1) * 30 / 11
    assert not list(tmp_path.glob("scores/**/knn/*pgd*"))


def test_not_even_the_first_detector_overruns_by_more_than_a_fifth(plan, tmp_path):
    engine, there = limited(plan, 1, tmp_path, slower={"msp": 50})
    assert there == set()
    assert engine.clock.now <= 1.2 * seconds(plan, 1) + 50 * seconds(plan, 1) / 11
    clean = {r.detector for r in Results(tmp_path).rows if r.side == "none"} - {""}
    assert clean == {"msp", "knn", "odin"}
    (note,) = manifest(tmp_path)["notes"]
    assert "is too short to attack knn (linf:0.02, linf:0.05), msp (" in note
    write_report(tmp_path)


def test_the_first_detector_is_begun_and_may_end_a_fifth_late(plan, tmp_path):
    _, there = limited(plan, 1, tmp_path, slower={"msp": 1.25})
    assert there == {("msp", "pgd linf:0.05")}


def test_a_killed_run_goes_on_with_the_whole_limit_and_a_finished_one_is_stable(plan, tmp_path):
    with suppress(KeyboardInterrupt):
        limited(plan, 2, tmp_path, most=6)  # four clean sets, two attacked
    _, there = limited(plan, 2, tmp_path)
    assert len(there) > 2
    rows = (tmp_path / "rows.jsonl").read_bytes()
    left_out = tuple(map(tuple, manifest(tmp_path)["time"]["left_out"]))
    assert len(left_out) == 6 - len(there) > 0
    engine, _ = limited(plan, 2, tmp_path, left_out=left_out)
    assert not [t for t in engine.did if t.threat is not None]
    assert (tmp_path / "rows.jsonl").read_bytes() == rows
    assert len(manifest(tmp_path)["notes"]) == 1
