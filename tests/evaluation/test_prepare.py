"""From settings to a bench: any network, any images, detectors that can be served."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from small_audit import MEAN, STD, audited, manifest, small_files, small_model
from small_pictures import save

from rood import data
from rood.data.base import SHARES
from rood.detectors import KNN, MSP, PRO, Mahalanobis
from rood.errors import CapabilityError, ConfigError, DataError, InputError, UnknownNameError
from rood.evaluation.division import OTHERS_SHARES
from rood.evaluation.prepare import (
    divided,
    load_networks,
    needs_labels,
    plan_audit,
    prepare,
)
from rood.evaluation.settings import AuditSettings
from rood.evaluation.store import Results


def test_training_images_are_not_tested_on():
    settings = AuditSettings(train="digits:inside", detectors=("msp",), threats=())
    with pytest.raises(DataError, match="--train and the test images to share no image"):
        prepare(settings)


def test_training_images_do_not_set_the_threshold(tmp_path):
    inside = data.load("digits:inside")
    images = data.split(inside, "threshold", calibrate=0.25, test=0.75)["calibrate"]
    np.savez(tmp_path / "train.npz", images=images.images.numpy(), labels=images.labels.numpy())
    train = f"npz:{tmp_path / 'train.npz'}"
    settings = AuditSettings(train=train, detectors=("msp",), threats=())
    with pytest.raises(DataError, match="--train and the threshold's images to share no image"):
        prepare(settings)


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


MOMENTS = ("--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)))


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


def test_a_size_that_the_first_image_decides_is_said(own, tmp_path):
    for name, size in (("even", (12, 10)), ("mixed", (12, 10)), ("mixed", (9, 14))):
        save(tmp_path / name / f"{size[0]}.png", 0, size)
    says = lambda inside, **more: [
        note
        for _, card in load_networks(
            AuditSettings(models=("own_net:make",), inside=f"folder:{tmp_path / inside}", **more)
        )[0].values()
        for note in card["notes"]
        if "several sizes" in note
    ]
    (note,) = says("mixed")
    assert "resized to 12x10, that of the first" in note
    assert "--size" in note
    assert says("mixed", size="8") == says("even") == []


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


def test_another_order_of_classes_stops_an_audit_unless_it_is_to_go_on(files, own, tmp_path):
    net = small_model().net
    with torch.no_grad():
        for p in (net.head.weight, net.head.bias):
            p.copy_(p.roll(1, dims=0).clone())  # another order of classes
    own.make = lambda: net
    options = ("--detectors", "msp", "--steps", "1", "--out", str(tmp_path / "o"), *MOMENTS)
    said = audited(files, *options, model="own_net:make")
    assert said.exit_code == 1
    assert (
        "1.00 in another order: the labels of outputs 0, 1, ... seem to be 2, 0, 1" in said.stderr
    )
    assert not (tmp_path / "o").exists()
    said = audited(files, *options, "--anyway", model="own_net:make")
    assert said.exit_code == 0
    assert any("in another order" in note for note in manifest(tmp_path / "o")["notes"])


def test_a_good_network_is_not_asked_for_its_class_order(files):
    settings = AuditSettings(
        models=(str(files / "net.safetensors"),),
        inside=str(files / "inside.npz"),
        outside={"s": str(files / "stripes.npz")},
        detectors=("msp",),
    )
    about = prepare(settings).about
    assert [note[:13] for note in about["notes"]] == ["small sample:"]
    assert "skipped" not in about


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


def counts(tmp_path, *models):
    pixels = np.random.default_rng(0).integers(0, 256, (250, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(250) % 3)
    settings = AuditSettings(models=models, inside=f"npz:{tmp_path / 'x.npz'}")
    parts = divided(settings, (3, 8, 8))
    return {name: len(part) for name, part in parts.items()}


def test_a_network_from_elsewhere_gets_a_fifth_for_its_threshold(tmp_path):
    found = counts(tmp_path, "timm:resnet50")
    assert set(found) == set(OTHERS_SHARES)
    assert abs(found["calibrate"] - 50) < 25


def test_a_network_of_ours_keeps_the_part_it_was_trained_on(tmp_path):
    found = counts(tmp_path, "digits-ce")
    assert found == {
        name: len(part)
        for name, part in data.split(data.load(f"npz:{tmp_path / 'x.npz'}"), "", **SHARES).items()
    }


def test_groups_of_images_reach_the_plan_and_stay_on_one_side(files, own, tmp_path):
    archive = dict(np.load(files / "inside.npz"))
    video = np.arange(len(archive["images"])) // 4
    np.savez(tmp_path / "clips.npz", **archive, video=video)
    given = {"inside": str(tmp_path / "clips.npz"), "outside": {"s": str(files / "stripes.npz")}}
    usual = {"detectors": ("msp",), "threats": (), "groups": {"inside": "video"}}
    net = {"models": (str(files / "net.safetensors"),)}
    with pytest.raises(InputError, match="expected --train beside groups of ID images"):
        plan_audit(AuditSettings(**given, **usual, **net))
    mine = {"models": ("own_net:make",), "mean": MEAN, "std": STD}
    plan = plan_audit(AuditSettings(**given, **usual, **mine))
    assert plan.inside.groups
    assert not set(plan.inside.groups) & set(plan.calibrate.groups)
    assert plan.outside["s"].groups == ()
    wrong = usual | {"groups": {"t": "video"}}
    with pytest.raises(UnknownNameError, match="no image set to group is called 't'"):
        plan_audit(AuditSettings(**given, **wrong, **mine))
    every = usual | {"groups": {"*": "video"}}
    with pytest.raises(DataError, match=r"expected an array 'video' in .*stripes.npz"):
        plan_audit(AuditSettings(**given, **every, **mine))


def test_groups_are_given_on_the_command_line(files, own, tmp_path):
    archive = dict(np.load(files / "inside.npz"))
    video = np.arange(len(archive["images"])) // 4
    np.savez(files / "clips.npz", **archive, video=video)
    options = ("--detectors", "msp", "--eps", "none", "--groups", "inside=video", *MOMENTS)
    said = audited(
        files, *options, "--out", str(tmp_path), model="own_net:make", inside="clips.npz"
    )
    assert said.exit_code == 0, said.output
    notes = manifest(tmp_path)["data"]["inside"]["notes"]
    assert "groups of images; intervals resample groups" in notes[-1]


def test_the_accuracy_is_of_all_test_images_and_attacks_of_some(files, tmp_path):
    options = ("--detectors", "msp", "--steps", "1", "--out", str(tmp_path / "o"))
    said = audited(files, *options)
    assert said.exit_code == 0, said.output
    rows = Results(tmp_path / "o")
    (known,) = rows.find(metric="accuracy")
    (clean,) = rows.find(metric="auroc", scenario="clean")
    assert (known.n_in, clean.n_in, clean.n_out) == (66, 12, 12)
    assert (known.small, clean.small) == (True, True)
    assert "of 66 images, a small sample" in " ".join(said.stdout.split())
    assert "small sample: 12 images per set" in said.stdout
    model, inside = small_model(), data.load(str(files / "inside.npz"))
    test = data.split(inside, "", **SHARES)["test"]
    assert known.value == float(
        (model(test.pixels()).logits.argmax(1) == test.labels).float().mean()
    )
    before = (tmp_path / "o" / "rows.jsonl").read_bytes()
    audited(files, *options)  # continued
    assert (tmp_path / "o" / "rows.jsonl").read_bytes() == before


def words(files, name, **options):
    """The settings of a detector of words, on a classifier of three classes."""
    return AuditSettings(
        models=("own_net:make",),
        mean=MEAN,
        std=STD,
        inside=str(files / "inside.npz"),
        outside={"s": str(files / "stripes.npz")},
        detectors=(name,),
        options={name: options} if options else {},
    )


@pytest.mark.parametrize("name", ["clip", "neglabel"])
def test_an_option_without_default_comes_from_the_settings_or_is_asked_for(name, files, own):
    with pytest.raises(ConfigError) as e:
        prepare(words(files, name))
    assert str(e.value) == (
        f"options.{name}: expected 'inside', which has no default, got none: give it in a settings "
        f"file, under [options.{name}]"
    )
    found = prepare(words(files, name, inside=2)).detectors["own_net:make"][name]
    assert found.inside == 2


@pytest.mark.parametrize("name", ["ensemble", "deep_ensemble", "low_resolution"])
def test_a_detector_made_of_others_has_no_name_on_the_command_line(name, files, own):
    with pytest.raises(InputError, match=f"of one network, got '{name}', which is made of others"):
        prepare(words(files, name))
