"""An audit in one line: any network, unlabelled images, wrong settings, a given time."""

import json

import numpy as np
import pytest
from small_audit import audited, manifest, small_files

from rood._offline import offline
from rood.attacks import PGD
from rood.evaluation.deadline import seconds
from rood.evaluation.effort import Pace
from rood.evaluation.prepare import plan_audit
from rood.evaluation.settings import AuditSettings
from rood.evaluation.time_limit import LADDER, Choice, choose


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = small_files(tmp_path_factory.mktemp("small"))
    x = np.load(root / "inside.npz")["images"]
    np.savez(root / "unlabelled.npz", images=x)
    return root


def test_a_tier_means_the_worst_of_many_attacks(files, tmp_path):
    options = ("--tier", "quick", "--detectors", "msp", "--out", str(tmp_path))
    said = audited(files, *options)
    assert said.exit_code == 0, said.output
    assert manifest(tmp_path)["settings"]["attack"]["tier"] == "quick"
    said = audited(files, "--tier", "quick", "--attack", "pgd")
    assert "no setting is called 'tier'" in said.stderr


def chosen(asked, time=1e-4, names=("a", "b"), **more):
    each = {n: (Pace(0.0, time * 10**i), 0) for i, n in enumerate(names)}
    return choose(asked, more.pop("spent", 0.0), each, sets=2, threats=1, **more)


def test_more_time_buys_more_and_never_more_than_was_asked_for():
    found = [chosen(f"{t}s") for t in (10, 30, 100, 300)]
    steps = [LADDER.index((c.attack, c.limit)) for c in found]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    assert all(c.seconds <= seconds(c.asked) for c in found)
    assert not any(c.dropped for c in found)


def test_the_dearest_detectors_go_first_where_nothing_fits():
    found = chosen("3s", names=("cheap", "slow", "slowest"))
    assert (found.attack, found.limit) == LADDER[0]
    assert found.dropped[0] == "slowest"
    assert "cheap" in found.detectors
    last = chosen("1s", time=10.0)
    assert last.detectors == ("a",)
    assert "which is over the limit" in last.sentence()


def test_of_about_equal_detectors_the_first_that_was_named_stays():
    each = {n: (Pace(0.0, t), 0) for n, t in (("first", 1.1), ("second", 1.0), ("third", 1.2))}
    assert choose("10s", 0.0, each, sets=2, threats=1).detectors == ("first",)


def test_what_was_said_is_not_chosen():
    found = chosen("1000s", attack=PGD(steps=7), limit=13)
    assert (found.attack, found.limit) == (PGD(steps=7), 13)
    assert chosen("10s", limit=13).limit == 13
    assert chosen("20s", spent=19.9).dropped


def test_a_choice_survives_the_manifest():
    found = chosen("100s")
    assert Choice.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_the_command_states_what_it_chose_and_a_second_run_keeps_it(files, tmp_path, monkeypatch):
    options = ("--time", "6s", "--detectors", "msp,knn", "--out", str(tmp_path))
    monkeypatch.setattr("rood.evaluation.prepare.measured", lambda *_: Pace(0.0, 6e-5))
    said = audited(files, *options)
    assert said.exit_code == 0, said.output
    told = manifest(tmp_path)
    assert f"time: {told['time']['chosen']}" in said.stderr
    assert told["time"]["chosen"].startswith("for 6s: WorstOf(tier=quick), ")
    assert told["settings"]["attack"]["class"] == "WorstOf"
    monkeypatch.setattr("rood.evaluation.prepare.measured", lambda *_: Pace(0.0, 1.0))
    again = audited(files, *options)  # slower now, but the choice was made
    assert again.exit_code == 0, again.output
    assert manifest(tmp_path)["time"] == told["time"]


@pytest.mark.parametrize("more", [(), ("--steps", "4"), ("--limit", "14")])
def test_a_second_run_keeps_an_attack_that_was_named(files, tmp_path, more):
    options = ("--time", "20s", "--detectors", "msp", "--out", str(tmp_path), "--limit", "13")
    options += ("--attack", "apgd", "--steps", "3")
    assert audited(files, *options).exit_code == 0
    assert manifest(tmp_path)["time"]["attack"] == "APGD"
    again = audited(files, *options, *more)
    if more:
        assert "holds results of other settings" in again.stderr
    else:
        assert again.exit_code == 0, again.exception
    short = audited(files, *options[: options.index("--limit")])
    assert short.exit_code == 0, short.exception  # what is not said is as it was chosen


def test_the_time_of_a_gradient_is_measured(files):
    settings = AuditSettings(
        models=(str(files / "net.safetensors"),),
        inside=str(files / "inside.npz"),
        outside={"s": str(files / "stripes.npz")},
        detectors=("msp", "pro_entropy"),
        time="1h",
        attack_options={"steps": 3},
        limit=7,
    )
    plan = plan_audit(settings)
    about = plan.about
    assert (plan.attack, len(plan.inside)) == (PGD(steps=3), 7)
    assert 0 < about["time"]["seconds"] < 3600
    assert about["time"]["detectors"] == ("msp", "pro_entropy")


def test_offline_is_a_switch(files, monkeypatch, tmp_path):
    for name in ("ROOD_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "0")
    assert not offline()
    said = audited(files, "--offline", model="hf:nobody/nothing")
    assert offline()
    assert "on this machine" in said.stderr or "needs transformers" in said.stderr


def test_numbers_that_are_none_are_refused(files):
    said = audited(files, "--mean", "a,b")
    assert "expected comma-separated numbers for --mean" in said.stderr
