"""An audit in one line: any network, unlabelled images, wrong settings, a given time."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_audit import audited, eight_bit, manifest, small_card, small_files, small_model
from toy_plan import carried_out

from rood._offline import offline
from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.errors import InputError
from rood.evaluation.deadline import OVER, seconds
from rood.evaluation.division import thinned
from rood.evaluation.effort import Pace
from rood.evaluation.prepare import plan_audit
from rood.evaluation.settings import AuditSettings
from rood.evaluation.store import Results
from rood.evaluation.time_limit import (
    LADDER,
    LEAST,
    SHARE,
    Choice,
    choose,
    clean_images,
    fewer,
    refuse_too_short,
)
from rood.models import checkpoint
from rood.models.model import Model
from rood.testing.world import blobs, stripes


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
    options = ("--time", "2m", "--detectors", "msp", "--out", str(tmp_path), "--limit", "13")
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


def test_clean_images_take_a_share_of_the_limit_at_most():
    parts = {"fit": (6000, 1.0), "calibrate": (900, 2.0), "accuracy": (150, 1.0)}
    assert clean_images("10m", 1e-3, parts) == {"fit": 6000, "calibrate": 900, "accuracy": 150}
    kept = clean_images("1m", 0.01, parts)
    assert 0.01 * sum(kept[k] * passes for k, (_, passes) in parts.items()) <= SHARE * 60 * 1.1
    assert kept["fit"] / 6000 == pytest.approx(kept["calibrate"] / 900, abs=0.01)
    assert kept["accuracy"] == LEAST
    assert fewer("1m", kept, {k: n for k, (n, _) in parts.items()}) == (
        f"1m is too short for all clean images: {kept['fit']} of 6000 fit the detectors, "
        f"{kept['calibrate']} of 900 set the threshold, {LEAST} of 150 measure the accuracy"
    )
    assert fewer("1m", {}, {}) == ""


@pytest.mark.parametrize(("spent", "attack"), [(0.0, 80.0), (80.0, 0.0)])
def test_a_limit_that_fits_nothing_is_refused_with_one_that_does(spent, attack):
    given = 1e-4, {"fit": (600, 1.0)}
    with pytest.raises(InputError, match=r"expected a time limit of at least 3m to .*, got 1m: "):
        refuse_too_short("1m", spent, *given, attack)
    refuse_too_short("3m", spent, *given, attack)
    refuse_too_short("1m", spent / 2, *given, attack / 2)


LIMIT = 100.0  # seconds, of a clock that only passes of a network move: 100s


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """How an audit is planned with a network that takes `each` seconds forward; and the clock."""
    x, y = blobs(12000, seed=5)
    checkpoint.save(small_model(), tmp_path / "net.safetensors", small_card())
    np.savez(tmp_path / "inside.npz", images=eight_bit(x), labels=y.numpy())
    np.savez(tmp_path / "stripes.npz", images=eight_bit(stripes(30, seed=6)))
    clock, usual = [0.0], Model.forward
    usual_settings = {"detectors": ("msp", "knn"), "threats": ("linf:0.02",), "time": "100s"}

    def planned(each, earlier=None, **more):
        def forward(self, x, *rest):
            clock[0] += each * len(x) * (3 if torch.is_grad_enabled() else 1)
            return usual(self, x, *rest)

        monkeypatch.setattr(Model, "forward", forward)
        settings = AuditSettings(
            models=(str(tmp_path / "net.safetensors"),),
            inside=str(tmp_path / "inside.npz"),
            outside={"s": str(tmp_path / "stripes.npz")},
            device="cpu",
            **usual_settings | more,
        )
        plan = plan_audit(settings, earlier)
        return replace(plan, deadline=replace(plan.deadline, clock=lambda: clock[0]))

    for name in ("time_limit.perf_counter", "prepare.monotonic"):
        monkeypatch.setattr(f"rood.evaluation.{name}", lambda: clock[0])
    return planned, clock


def test_a_quick_network_sees_all_clean_images(timed):
    plan = timed[0](LIMIT / 1e6)
    assert (len(plan.calibrate), len(plan.every)) == (plan.about["split"]["calibrate"], 1000)
    assert plan.about["split"]["fit"] > 5000
    assert "clean" not in plan.about["time"]
    assert not plan.named.kept


def test_a_slow_network_sees_fewer_clean_images_and_the_limit_holds(timed, tmp_path):
    planned, clock = timed
    every = planned(LIMIT / 1e6).about["split"]
    clock[0] = 0.0
    plan = planned(LIMIT / 25000)
    kept = plan.about["time"]["clean"]
    assert (len(plan.calibrate), len(plan.every)) == (kept["calibrate"], kept["accuracy"])
    assert plan.about["split"]["fit"] == kept["fit"] == plan.named.kept["fit"] < every["fit"]
    (said,) = [n for n in plan.about["notes"] if "all clean images" in n]
    assert f"{kept['fit']} of {every['fit']} fit the detectors" in said
    carried_out(plan, tmp_path / "audit")
    assert clock[0] <= (1 + OVER) * LIMIT
    attacked = {r.detector for r in Results(tmp_path / "audit").rows if r.side == "both"}
    assert "msp" in attacked
    again = planned(LIMIT / 1e6, earlier=manifest(tmp_path / "audit")["time"])
    assert again.settings() == plan.settings()  # quicker now, but the choice was made
    assert len(again.every) == len(plan.every)


@pytest.mark.parametrize("more", [{}, {"threats": (), "each": LIMIT / 800}, {"limit": 12}])
def test_a_limit_too_short_for_anything_is_refused_before_it_is_spent(timed, more):
    planned, clock = timed
    more = {"each": LIMIT / 2500} | more
    with pytest.raises(InputError, match=r"expected a time limit of at least .*, got 100s: give"):
        planned(**more)
    assert clock[0] < 0.1 * LIMIT


def test_a_time_that_is_none_is_refused(timed):
    with pytest.raises(InputError, match="expected a time such as"):
        timed[0](LIMIT / 1e6, time="soon")


def test_thinned_images_keep_the_share_of_each_class():
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[torch.randperm(100)]
    fit = ImageSet("fit", torch.rand(100, 1, 2, 2), y)
    parts = thinned({"fit": fit, "test": fit}, {"fit": 20})
    assert parts["test"] is fit
    assert parts["fit"].labels.bincount().tolist() == [12, 6, 2]
    some = thinned({"fit": ImageSet("fit", fit.images)}, {"fit": 5})["fit"]
    assert len(some) == 5
    assert len(thinned({"fit": fit}, {"fit": 200})["fit"]) == 100


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
