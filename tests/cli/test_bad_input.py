"""Whatever is wrong with what a person gives: one line that says so, exit code 1, nothing lost."""

import copy
import json

import numpy as np
import pytest
import torch
from bad_input import class_folder, corrupt, invoke, refused
from safetensors.torch import load_file, save_file
from small_audit import eight_bit, small_card, small_model
from typer.testing import CliRunner

import rood
from rood.cli import app
from rood.detectors import MSP
from rood.errors import CapabilityError, CheckpointError, InputError, RoodError
from rood.models import checkpoint
from rood.testing.world import blobs

EXISTING = ("net.safetensors", "inside.npz")


def spoilt_weights(here, how):
    checkpoint.save(small_model(), here / "bad.safetensors", small_card())
    path = here / "bad.safetensors"
    if how == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "nan":
        state = load_file(path)
        state["head.bias"][0] = torch.nan
        save_file(state, path)
        card = json.loads(path.with_suffix(".json").read_text())
        card["sha256"] = checkpoint.sha256_of(path)
        path.with_suffix(".json").write_bytes(checkpoint.sealed(card, checkpoint.SEAL))
    elif how == "no card":
        path.with_suffix(".json").unlink()
    return ["--model", str(path)]


def npz(here, name, **arrays):
    np.savez(here / name, **arrays)
    return f"npz:{here / name}"


def labelled(here, n, keep=lambda y: y >= 0):
    x, y = blobs(n, seed=9)
    return npz(here, "own.npz", images=eight_bit(x[keep(y)]), labels=y[keep(y)].numpy())


def bad_pixels(here):
    images = np.random.default_rng(0).normal(size=(30, 3, 8, 8)).astype(np.float32)
    return ["--outside", "z=" + npz(here, "z.npz", images=images)]


def one_class(here):
    x, y = blobs(30, seed=1)
    return ["--inside", str(class_folder(here / "one", x, y * 0))]


def empty(here):
    (here / "empty").mkdir()
    return ["--outside", str(here / "empty")]


def empty_class(here):
    x, y = blobs(30, seed=1)
    folder = class_folder(here / "classes", x, y)
    (folder / "d").mkdir()
    return ["--inside", str(folder)]


CASES = {
    "missing model": (lambda h: ["--model", str(h / "no.safetensors")], ["no.safetensors"]),
    "cut short": (lambda h: spoilt_weights(h, "cut short"), ["bad.safetensors", "cut short"]),
    "empty weights": (lambda h: spoilt_weights(h, "empty"), ["bad.safetensors"]),
    "nan weights": (lambda h: spoilt_weights(h, "nan"), ["finite weights", "head.bias"]),
    "no card": (lambda h: spoilt_weights(h, "no card"), ["bad.json", "keep both together"]),
    "not ours": (lambda h: ["--model", "resnet.pth"], [".safetensors", "resnet.pth"]),
    "unknown model": (lambda h: ["--model", "digitsce"], ["no trained network", "digitsce"]),
    "corrupt image": (corrupt, ["3.png", "--skip-bad"]),
    "pixels": (bad_pixels, ["z.npz", "[0, 1]", "do not normalise"]),
    "negative eps": (lambda h: ["--eps", "-1/255"], ["eps >= 0", "-0.0039"]),
    "nan eps": (lambda h: ["--eps", "nan"], ["eps >= 0", "nan"]),
    "garbage eps": (lambda h: ["--eps", "0.1,lots"], ["linf:8/255", "'lots'"]),
    "unknown norm": (lambda h: ["--eps", "linv:0.1"], ["norm", "'linv'", "'linf'"]),
    "eps of nothing": (lambda h: ["--eps", "0"], ["budget above 0", "linf:0", "--eps none"]),
    "a gate in percent": (lambda h: ["--fail-under", "70"], ["0 to 1", "70", "mean 0.7?"]),
    "a gate of nan": (lambda h: ["--fail-under", "nan"], ["0 to 1", "nan"]),
    "the same images twice": (
        lambda h: ["--outside", f"x={h / 'inside.npz'}"],
        ["ID images too", "'x'"],
    ),
    "no eps": (lambda h: ["--eps", ""], ["--eps"]),
    "no steps": (lambda h: ["--steps", "0"], ["steps >= 1", "0"]),
    "detector": (lambda h: ["--detectors", "mahalanobi"], ["did you mean 'mahalanobis'?"]),
    "no detector": (lambda h: ["--detectors", ","], ["--detectors"]),
    "source": (lambda h: ["--outside", "x=foldr:x"], ["no source", "did you mean 'folder'?"]),
    "missing images": (lambda h: ["--outside", "no/such"], ["no/such", "does not exist"]),
    "missing npz": (lambda h: ["--inside", "npz:no.npz"], ["no.npz", "does not exist"]),
    "same name": (
        lambda h: ["--outside", "a=digits:near", "--outside", "a=digits:noise"],
        ["'a' twice"],
    ),
    "taken name": (lambda h: ["--outside", f"inside={h / 'grey.npz'}"], ["'inside'"]),
    "no label": (
        lambda h: ["--inside", str(h / "grey.npz"), "--detectors", "mahalanobis"],
        ["labelled images", "--train"],
    ),
    "class without images": (
        lambda h: ["--inside", labelled(h, 400, lambda y: y != 1), "--detectors", "mahalanobis"],
        ["class 1"],
    ),
    "more classes than the network": (
        lambda h: ["--inside", npz(h, "m.npz", images=eight_bit(blobs(240, 3)[0]),
                                   labels=np.arange(240) % 5)],
        ["labels 0 to 2", "got up to 4"],
    ),
    "an empty class": (empty_class, ["'d'", "remove it or fill it"]),
    "one class": (one_class, ["two class folders", "'a'"]),
    "empty": (empty, ["empty", "got none"]),
    "too few to calibrate": (lambda h: ["--inside", labelled(h, 120)], ["at least 20", "95 %"]),
    "too few to split": (lambda h: ["--inside", labelled(h, 3)], ["give more images"]),
    "device": (lambda h: ["--device", "abacus"], ["'abacus'", "cpu or cuda"]),
    "limit": (lambda h: ["--limit", "-5"], ["limit of at least 1", "-5"]),
    "batch size": (lambda h: ["--batch-size", "0"], ["batch size >= 1", "0"]),
    "seed": (lambda h: ["--seed", "-1"], ["seed >= 0", "-1"]),
    "below a file": (lambda h: ["--out", str(h / "net.safetensors" / "out")], ["cannot write"]),
    "unwritable": (lambda h: ["--out", "/proc/rood/out"], ["cannot write", "/proc/rood/out"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_wrong_arguments_are_refused_in_one_line(here, case):
    arguments, words = CASES[case]
    before = {f: (here / f).read_bytes() for f in EXISTING}
    refused(invoke(here, *arguments(here)), *words)
    assert not (here / "out").exists()
    assert {f: (here / f).read_bytes() for f in EXISTING} == before


TOML = {
    "unknown key": ("limits = 5", ["no setting is called 'limits'", "did you mean 'limit'?"]),
    "wrong type": ("seed = 'three'", ["audit.toml: seed: expected int", "'three'"]),
    "a bare word for a list": ("eps = 'linf:0.1'", ["audit.toml: eps: expected", "'linf:0.1'"]),
    "not TOML": ("limit == 5", ["expected TOML in", "audit.toml"]),
    "unknown attack": ("attack = 'pdg'", ["no attack is called 'pdg'", "did you mean 'pgd'?"]),
    "attack option": (
        "attack_options = {step_count = 5}",
        ["no setting is called 'step_count'", "did you mean 'step'?"],
    ),
    "attack type": ("attack_options = {restarts = 1.5}", ["restarts: expected int", "1.5"]),
    "k > n": ("[options.knn]\nk = 500", ["at least k = 500", "lower k"]),
    "k = 0": ("[options.knn]\nk = 0", ["k >= 1", "got 0"]),
    "k of another type": ("[options.knn]\nk = 'many'", ["options.knn: k: expected int", "'many'"]),
    "an option of nobody": (
        "[options.knn]\nkk = 5",
        ["no setting is called 'kk'", "did you mean 'k'?"],
    ),
    "a choice": ("[options.mahalanobis]\npooling = 'all'", ["pooling", "'pooled'", "'all'"]),
    "a dimension": (
        "[options.vim]\ndimension = 999",
        ["expected a dimension between 1 and", "got 999"],
    ),
    "options of nobody": ("[options.gradnorm]\nx = 1", ["options for", "'gradnorm'"]),
}


@pytest.mark.parametrize("case", TOML)
def test_wrong_settings_files_are_refused_in_one_line(here, case):
    toml, words = TOML[case]
    more = ["--detectors", "knn,mahalanobis,vim"]
    refused(invoke(here, *more, toml=toml), *words)
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("command", "given", "missing"),
    [
        (["audit"], (), "--inside"),
        (["audit"], ("--inside", "inside.npz"), "--outside"),
        (["audit"], ("--outside", "stripes.npz"), "--inside"),
        (["fit"], (), "--inside"),
        (["attack", "--direction", "look_out"], (), "--inside"),
        (["attack"], ("--inside", "inside.npz"), "--images"),
    ],
)
def test_digits_never_stand_in_for_images_of_somebodys_network(here, command, given, missing):
    out = ["--out", str(here / "out")]
    result = CliRunner().invoke(app, [*command, "--model", "net.safetensors", *given, *out])
    refused(result, f"expected {missing} beside", "net.safetensors", f"{missing} folder:DIR")
    assert not (here / "out").exists()


def test_mean_and_std_of_8_bit_pixels_are_refused(here, monkeypatch):
    (here / "own_for_mean.py").write_text(
        "from rood.models import backbones\n"
        "make = lambda: backbones.create('small_cnn', classes=3, channels=3, width=4)\n"
    )
    monkeypatch.syspath_prepend(str(here))
    images = ["--inside", str(here / "inside.npz"), "--outside", f"x={here / 'stripes.npz'}"]
    given = ["--model", "own_for_mean:make", "--mean", "33", "--std", "78", *images]
    result = CliRunner().invoke(app, ["audit", *given, "--out", str(here / "out")])
    refused(result, "[0, 1]", "33", "by 255")


def test_a_settings_file_that_is_not_there(here):
    result = CliRunner().invoke(app, ["audit", "no.toml"])
    refused(result, "no.toml", "found none")


def test_a_report_of_nothing(here):
    refused(CliRunner().invoke(app, ["report", str(here / "nothing")]), "run `rood audit` first")


def one_sentence(caught):
    assert isinstance(caught.value, RoodError)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")


def test_a_model_in_half_precision_or_on_another_device_is_refused(world):
    for spoil in (lambda n: n.half(), lambda n: n.bfloat16(), lambda n: n.to("meta")):
        with pytest.raises(CapabilityError, match="expected") as caught:
            rood.wrap(spoil(copy.deepcopy(world.model.net)))
        one_sentence(caught)
    net = copy.deepcopy(world.model.net)
    net[0].weight.data[0] = torch.nan
    with pytest.raises(CheckpointError, match="NaN") as caught:
        rood.wrap(net)
    one_sentence(caught)


def test_images_of_another_kind_than_the_model_are_refused(world):
    detector = MSP(world.model)
    for x in (world.inside.half(), world.inside.double(), world.inside.to("meta")):
        with pytest.raises(InputError, match="expected") as caught:
            detector.score(x)
        one_sentence(caught)
