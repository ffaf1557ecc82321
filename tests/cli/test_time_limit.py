"""An audit in one line: any network, unlabelled images, wrong settings, a given time."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from small_audit import MEAN, STD, small_files, small_model
from typer.testing import CliRunner

from rood._offline import offline
from rood.attacks import PGD, WorstOf
from rood.cli import app
from rood.detectors import KNN, MSP, PRO, Mahalanobis
from rood.errors import CapabilityError, InputError
from rood.evaluation.prepare import load_networks, needs_labels, plan_audit, prepare
from rood.evaluation.settings import AuditSettings
from rood.evaluation.time_limit import LADDER, Choice, choose, passes, seconds


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = small_files(tmp_path_factory.mktemp("small"))
    x = np.load(root / "inside.npz")["images"]
    np.savez(root / "unlabelled.npz", images=x)
    return root


@pytest.fixture
def own(monkeypatch):
    """A module `own_net` with the small network in several states."""
    made = ModuleType("own_net")
    made.make = lambda: small_model().net
    monkeypatch.setitem(sys.modules, "own_net", made)
    return made


def audited(files, *options, model=None, inside="inside.npz", eps="0.02"):
    what = ["--model", model or str(files / "net.safetensors"), "--inside", str(files / inside)]
    how = ["--outside", f"s={files / 'stripes.npz'}", "--eps", eps, "--device", "cpu"]
    how += [] if "--budget" in options else ["--limit", "12"]
    return CliRunner().invoke(app, ["audit", *what, *how, *options])


def manifest(out):
    return json.loads((out / "manifest.json").read_text())


MOMENTS = ("--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)))


# any network


def test_a_network_of_ones_own_is_audited_in_one_line(files, own, tmp_path):
    options = ("--detectors", "msp,knn", "--steps", "3", "--out", str(tmp_path / "o"), *MOMENTS)
    said = audited(files, *options, model="own_net:make")
    assert said.exit_code == 0, said.output
    assert "report:" in said.output
    assert "note: own_net:make: no --weights were given" in said.stderr
    told = manifest(tmp_path / "o")
    assert list(told["models"]) == ["own_net:make"]
    assert told["models"]["own_net:make"]["fingerprint"] == small_model().fingerprint()


def test_weights_are_for_one_network(files):
    said = audited(files, "--model", "digits-ce", "--weights", "w.pth")
    assert said.exit_code == 1
    assert "expected one network beside --weights" in said.stderr


def test_networks_are_called_by_the_last_part_of_their_names(files, own):
    net = str(files / "net.safetensors")
    networks, shape = load_networks(
        AuditSettings(models=(net, "own_net:make"), inside="digits:inside")
    )
    assert list(networks) == ["net", "own_net:make"]
    assert shape == tuple(networks["net"][1]["shape"])


def test_the_images_tell_the_shape_where_the_network_does_not(files, own):
    inside = str(files / "inside.npz")
    own_shape = np.load(inside)["images"].shape[1:]
    _, shape = load_networks(AuditSettings(models=("own_net:make",), inside=inside))
    assert shape == own_shape
    _, shape = load_networks(AuditSettings(models=("own_net:make",), inside=inside, size="12x10"))
    assert shape == (3, 12, 10)
    with pytest.raises(InputError, match="a size such as 32 or 32x48"):
        load_networks(AuditSettings(models=("own_net:make",), inside=inside, size="big"))
    with pytest.raises(InputError, match="expected no --size beside networks of rood"):
        load_networks(AuditSettings(models=("digits-ce",), inside=inside, size="12"))


def test_logits_alone_leave_out_the_detectors_of_features_by_name(files, own, tmp_path):
    own.make = lambda: torch.nn.Sequential(small_model().net, torch.nn.Tanh())
    options = ("--detectors", "msp,knn,vim,odin,klm", "--steps", "2", *MOMENTS)
    said = audited(files, *options, "--out", str(tmp_path / "o"), model="own_net:make")
    assert said.exit_code == 0, said.output
    sentence = "knn, vim: own_net:make gives logits only, no features"
    assert f"skipped: {sentence}" in said.stderr
    assert manifest(tmp_path / "o")["skipped"] == [sentence]
    assert list(manifest(tmp_path / "o")["detectors"]) == ["msp", "odin", "klm"]
    settings = {"models": ("own_net:make",), "inside": str(files / "inside.npz")}
    with pytest.raises(CapabilityError, match="got knn, which read features: take msp"):
        prepare(AuditSettings(**settings, outside={}, detectors=("knn",)))


# unlabelled images, wrong settings


def test_unlabelled_images_leave_out_the_detectors_that_need_labels(files, tmp_path):
    options = ("--detectors", "msp,mahalanobis,knn,she", "--steps", "2", "--out", str(tmp_path))
    said = audited(files, *options, inside="unlabelled.npz")
    assert said.exit_code == 0, said.output
    assert "skipped: mahalanobis, she: 'unlabelled/fit' has unlabelled images" in said.stderr
    assert list(manifest(tmp_path)["detectors"]) == ["msp", "knn"]
    said = audited(files, "--detectors", "mahalanobis", inside="unlabelled.npz")
    assert "expected labelled images to fit mahalanobis, got none" in said.stderr


def test_a_class_without_images_leaves_out_the_detectors_that_learn_class_by_class(files, tmp_path):
    archive = np.load(files / "inside.npz")
    two = np.minimum(archive["labels"], 1)  # of three classes
    np.savez(tmp_path / "two.npz", images=archive["images"], labels=two)
    settings = {"models": (str(files / "net.safetensors"),), "inside": str(tmp_path / "two.npz")}
    outside = {"s": str(files / "stripes.npz")}
    names = ("mahalanobis", "temperature_scaling", "msp", "she")
    bench = prepare(AuditSettings(**settings, outside=outside, detectors=names))
    assert list(bench.detectors["net"]) == ["temperature_scaling", "msp"]
    sentence = "mahalanobis, she: 'two/fit' has images of 2 of 3 classes"
    assert bench.about["skipped"] == [sentence]
    with pytest.raises(InputError, match="expected training images of all 3 classes to fit she"):
        prepare(AuditSettings(**settings, outside=outside, detectors=("she",)))


def test_a_detector_needs_labels_where_one_inside_it_does():
    model = small_model()
    assert needs_labels(PRO(Mahalanobis(model)))
    assert not needs_labels(PRO(MSP(model)))


def test_accuracy_near_chance_asks_for_mean_std_and_class_order(files, own, tmp_path):
    net = small_model().net
    with torch.no_grad():
        for p in (net.head.weight, net.head.bias):
            p.copy_(p.roll(1, dims=0).clone())  # another order of classes
    own.make = lambda: net
    options = ("--detectors", "msp", "--steps", "1", "--out", str(tmp_path), *MOMENTS)
    said = audited(files, *options, model="own_net:make")
    assert "near chance, 0.333: wrong mean/std or class order?" in said.stderr
    assert any("near chance" in note for note in manifest(tmp_path)["notes"])


def test_a_good_network_is_not_asked_for_its_class_order(files):
    settings = AuditSettings(
        models=(str(files / "net.safetensors"),),
        inside=str(files / "inside.npz"),
        outside={"s": str(files / "stripes.npz")},
        detectors=("msp",),
    )
    about = prepare(settings).about
    assert "notes" not in about
    assert "skipped" not in about


# tiers and time


def test_a_tier_means_the_worst_of_many_attacks(files, tmp_path):
    options = ("--tier", "quick", "--detectors", "msp", "--out", str(tmp_path))
    said = audited(files, *options)
    assert said.exit_code == 0, said.output
    assert manifest(tmp_path)["settings"]["attack"]["tier"] == "quick"
    said = audited(files, "--tier", "quick", "--attack", "pgd")
    assert "no setting is called 'tier'" in said.stderr


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_time_is_a_number_and_a_unit(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["10", "m", "-3s", "0s", "ten minutes", ""])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="expected a time such as 90s, 10m or 2h"):
        seconds(text)


def test_passes_are_counted_not_guessed():
    assert 20 <= passes(PGD(steps=20), 0) <= 22
    assert passes(PGD(steps=20), 1) == 2 * passes(PGD(steps=20), 0)
    quick, standard = (passes(WorstOf(tier=t), 0) for t in ("quick", "standard"))
    assert 30 < quick < standard


def chosen(asked, time=1e-4, names=("a", "b"), **more):
    each = {n: (time * 10**i, 0) for i, n in enumerate(names)}
    return choose(asked, more.pop("spent", 0.0), each, sets=2, threats=1, **more)


def test_more_time_buys_more_and_never_more_than_was_asked_for():
    found = [chosen(f"{t}s") for t in (10, 30, 100, 300)]
    steps = [LADDER.index((c.attack, c.limit)) for c in found]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    assert all(c.seconds <= seconds(c.asked) for c in found)
    assert not any(c.dropped for c in found)


def test_the_dearest_detectors_go_first_where_nothing_fits():
    found = chosen("3s", names=("cheap", "dear", "dearest"))
    assert (found.attack, found.limit) == LADDER[0]
    assert found.dropped[0] == "dearest"
    assert "cheap" in found.detectors
    last = chosen("1s", time=10.0)
    assert last.detectors == ("a",)
    assert "which is over the limit" in last.sentence()


def test_of_about_equal_detectors_the_first_that_was_named_stays():
    each = {"first": (1.1, 0), "second": (1.0, 0), "third": (1.2, 0)}
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
    options = ("--budget", "6s", "--detectors", "msp,knn", "--out", str(tmp_path))
    monkeypatch.setattr("rood.evaluation.prepare.gradient_time", lambda d, x: 1e-4)
    said = audited(files, *options)
    assert said.exit_code == 0, said.output
    told = manifest(tmp_path)
    assert f"budget: {told['budget']['chosen']}" in said.stderr
    assert told["budget"]["chosen"].startswith("for 6s: WorstOf(tier=quick), 50 images")
    assert told["settings"]["attack"]["class"] == "WorstOf"
    monkeypatch.setattr("rood.evaluation.prepare.gradient_time", lambda d, x: 1.0)
    again = audited(files, *options)  # slower now, but the choice was made
    assert again.exit_code == 0, again.output
    assert manifest(tmp_path)["budget"] == told["budget"]


@pytest.mark.parametrize("more", [(), ("--steps", "4"), ("--limit", "14")])
def test_a_second_run_keeps_an_attack_that_was_named(files, tmp_path, more):
    options = ("--budget", "20s", "--detectors", "msp", "--out", str(tmp_path), "--limit", "13")
    options += ("--attack", "apgd", "--steps", "3")
    assert audited(files, *options).exit_code == 0
    assert manifest(tmp_path)["budget"]["attack"] == "APGD"
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
        budget="1h",
        attack_options={"steps": 3},
        limit=7,
    )
    plan = plan_audit(settings)
    about = plan.about
    assert (plan.attack, len(plan.inside)) == (PGD(steps=3), 7)
    assert 0 < about["budget"]["seconds"] < 3600
    assert about["budget"]["detectors"] == ("msp", "pro_entropy")


def test_offline_is_a_switch(files, monkeypatch, tmp_path):
    for name in ("ROOD_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "0")
    assert not offline()
    said = audited(files, "--offline", model="hf:nobody/nothing")
    assert offline()
    assert "on this machine" in said.stderr or "needs transformers" in said.stderr


def test_numbers_that_are_none_are_refused(files):
    said = audited(files, "--mean", "a,b")
    assert "expected comma-separated numbers for --mean, got 'a,b'" in said.stderr


def test_a_knn_is_fitted_on_what_the_network_really_gives(files, own):
    settings = AuditSettings(
        models=("own_net:make",),
        mean=MEAN,
        std=STD,
        inside=str(files / "inside.npz"),
        outside={"s": str(files / "stripes.npz")},
        detectors=("knn",),
    )
    knn = prepare(settings).detectors["own_net:make"]["knn"]
    assert isinstance(knn, KNN)
    assert knn.bank_.shape[1] == small_model().head.in_features
