"""The guard: what it promises about false alarms, and that a folder gives it back or nothing."""

import hashlib
import json
import math
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from safetensors.torch import save_file
from scipy.stats import binom
from small_audit import small_model
from torch.nn.functional import interpolate

import rood
from rood.detectors import (
    GEN,
    KNN,
    MSP,
    PRO,
    DeepEnsemble,
    Ensemble,
    Gram,
    LowResolution,
    Mahalanobis,
    Mirrored,
    OutputDetector,
    registry,
)
from rood.errors import CapabilityError, CheckpointError, InputError, NotFittedError
from rood.guard import folder as guard_folder
from rood.guard.calibration import calibrate
from rood.guard.guard import Guard
from rood.models.wrap import wrap
from rood.testing._support import as_in_production, example
from rood.testing.world import blobs, stripes

CLASSES = ("red", "green", "blue")


def batches(n=120, seed=11):
    x, y = blobs(n, seed=seed)
    return [(x[i : i + 40], y[i : i + 40]) for i in range(0, n, 40)]


def mixed():
    return torch.cat([blobs(20, seed=21)[0], stripes(20, seed=22)])


def guarded(detector, **options):
    detector = detector.eval().fit(batches(240, seed=10))
    return Guard.calibrated(detector, batches(), **options)


@pytest.fixture(scope="module")
def _model():
    return small_model()


@pytest.fixture
def model(_model):
    return _model


@pytest.fixture
def saved(model, tmp_path):
    """A guard with something in every file, and where it lies."""
    guard = guarded(KNN(model, k=5), classes=CLASSES, about={"why": "to test"})
    guard.save(tmp_path / "guard")
    return guard, tmp_path / "guard"


def same(a, b):
    return all(torch.equal(one, other) for one, other in zip(a, b, strict=True))


# --- the threshold


@given(
    st.lists(st.integers(-5, 5), min_size=20, max_size=60),
    st.sampled_from([0.05, 0.1, 0.2, 1 / 3, 0.5, 0.9]),
    st.booleans(),
)
def test_no_more_than_the_stated_share_of_exchangeable_images_is_rejected(values, rate, distinct):
    """Each of n + 1 scores in its turn is the new one: exact, whatever the scores are."""
    scores = np.array(values, dtype=float)
    if distinct:
        scores = scores + np.arange(len(scores)) * 1e-3
    alarms = sum(
        scores[i] > calibrate(np.delete(scores, i), rate).threshold for i in range(len(scores))
    )
    most = rate * len(scores) * (1 + 1e-9)
    assert alarms <= most
    found = calibrate(scores[1:], rate)
    assert found.bound <= rate * (1 + 1e-9)
    if distinct:  # and not one fewer than could be had
        assert alarms == math.floor(most)
        assert found.bound == pytest.approx(alarms / len(scores))


@pytest.mark.parametrize(("n", "rate"), [(19, 0.05), (304, 0.05), (99, 0.01), (5000, 0.001)])
def test_the_range_of_the_deployed_rate_is_exact(n, rate):
    """The rate is below p where at least n + 1 - rank of n images are above the 1 - p quantile."""
    found = calibrate(np.arange(n, dtype=float), rate)
    above = n + 1 - found.rank
    _, low, high = found.deployed
    assert binom.sf(above - 1, n, low) == pytest.approx(0.025)
    assert binom.sf(above - 1, n, high) == pytest.approx(0.975)


def test_what_was_seen_is_said_with_its_interval():
    found = calibrate(np.arange(304.0))
    assert (found.rank, found.threshold, found.rejected) == (290, 289.0, 14)
    assert found.observed.value == 14 / 304
    assert found.observed.low < 14 / 304 < found.observed.high
    assert "14 of 304 calibration images are rejected, 4.6 % (2.8 to 7.6)" in found.told()
    assert "with probability 4.92 % at most" in found.told()


@pytest.mark.parametrize(("rate", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9)])
def test_too_few_images_for_a_rate_are_refused_with_the_number_needed(rate, needed):
    assert calibrate(np.arange(float(needed)), rate).rejected == 0
    words = f"expected at least {needed} in-distribution images"
    refused(InputError, words, calibrate, np.arange(needed - 1.0), rate)


def test_scores_that_set_no_threshold_are_refused():
    refused(InputError, "NaN", calibrate, np.array([np.nan] * 30))
    refused(InputError, "finite scores", calibrate, np.array([np.inf] * 30))
    for rate in (0, 1, -0.1, math.nan):
        refused(InputError, "false-alarm rate between 0 and 1", calibrate, np.arange(30.0), rate)


# --- deciding


def test_a_decision_is_label_score_and_accept(model):
    guard = guarded(KNN(model, k=5), rate=0.1)
    x = mixed()
    label, score, accept = guard(x)
    assert torch.equal(label, model(x).logits.argmax(dim=1))
    assert torch.equal(score, guard.detector.score(x).detach())
    assert torch.equal(accept, score <= guard.threshold)
    assert accept[:20].float().mean() > 0.7
    assert not accept[20:].any()
    assert not score.requires_grad


@pytest.mark.parametrize("around", [lambda d: d, Mirrored, lambda d: Ensemble([d])])
def test_behind_a_resize_the_label_is_that_of_the_resized_image(model, around):
    detector = around(LowResolution(MSP(model), size=(24, 24)))
    x = mixed()
    label, score, _ = guarded(detector)(x)
    logits = model(interpolate(x, (24, 24), mode="bilinear")).logits
    assert torch.equal(label, logits.argmax(dim=1))
    assert torch.equal(score, detector.score(x))
    assert not torch.equal(label, model(x).logits.argmax(dim=1))


def test_the_calibration_images_are_rejected_as_often_as_it_says(model):
    guard = guarded(MSP(model), rate=0.1)
    rejected = sum(int((~guard(x).accept).sum()) for x, _ in batches())
    assert rejected == guard.calibration.rejected == 11


class Broken(OutputDetector):
    """NaN for half of the images that it was not calibrated on."""

    def score_outputs(self, out):
        odd = torch.arange(len(out.logits)) % 2 == 0
        return torch.where(odd & (len(odd) != 40), torch.nan, out.logits[:, 0])


def test_a_score_that_is_not_a_number_is_rejected(model):
    guard = Guard.calibrated(Broken(model), batches(), rate=0.5)
    _, score, accept = guard(mixed()[:30])
    assert score[::2].isnan().all()
    assert not accept[::2].any()
    assert accept[1::2].any()


def test_images_that_the_threshold_says_nothing_about_are_refused(model):
    guard = guarded(MSP(model))
    with as_in_production():
        refused(InputError, "on which the threshold was set", guard, torch.zeros(1, 3, 9, 8))
        refused(InputError, "[0, 1]", guard, torch.full((1, 3, 8, 8), 1.5))
        refused(InputError, "(b, c, h, w)", guard, torch.zeros(3, 8, 8))


def test_no_images_get_no_decisions(model):
    for answer in guarded(KNN(model, k=5))(torch.empty(0, 3, 8, 8)):
        assert answer.shape == (0,)


def test_what_makes_no_guard_is_refused(model):
    refused(NotFittedError, "call fit() first", Guard.calibrated, KNN(model), batches())
    refused(InputError, "no image", Guard.calibrated, MSP(model), [])
    odd = [*batches(), (torch.zeros(1, 3, 9, 9), torch.zeros(1, dtype=torch.long))]
    refused(InputError, "one shape, got 2 shapes", Guard.calibrated, MSP(model), odd)
    words = "expected 3 names, one for each class of the network, got 2"
    refused(InputError, words, guarded, MSP(model), classes=("a", "b"))


# --- on disk

OTHERS = {
    "pro of knn": lambda m: PRO(KNN(m, k=3), eps=0.002, steps=2),
    "ensemble of fitted ones": lambda m: Ensemble([KNN(m, k=3), Mahalanobis(m)], scale="normal"),
    "ensemble in an ensemble": lambda m: Ensemble([Ensemble([MSP(m), GEN(m, top=2)]), MSP(m)]),
    "two networks": lambda m: Ensemble([MSP(m), KNN(other(), k=3)], scale="normal"),
    "deep ensemble of two": lambda m: DeepEnsemble([m, other()]),
    "low resolution of knn": lambda m: LowResolution(KNN(m, k=3), size=(16, 16)),
    "gram of some layers": lambda m: Gram(m, layers=("layers.2", "layers.5"), orders=2),
}


def other():
    net = small_model().net
    with torch.no_grad():
        net.head.weight.mul_(1.5)
    return wrap(net, mean=(0.3,), std=(0.3,))


LOADED = """
import sys
import torch
import rood
from safetensors.torch import load_file, save_file
torch.set_num_threads(1)
for folder in sys.argv[2:]:
    label, score, accept = rood.Guard.load(folder)(load_file(sys.argv[1])["x"])
    save_file({"label": label, "score": score, "accept": accept}, folder + "/again.safetensors")
"""


def test_every_detector_decides_the_same_in_another_process(model, tmp_path):
    """To the last bit, for all that is registered, wrapping ones and presets among them."""
    registered = {n: example(registry.get(n)) for n in registry.names() if n != "clip"}
    x = mixed()
    save_file({"x": x}, tmp_path / "x.safetensors")
    said = {}
    for name, make in (registered | OTHERS).items():
        guard = guarded(make(model), rate=0.2)
        said[name] = guard(x)
        guard.save(tmp_path / name)
    command = [sys.executable, "-c", LOADED, str(tmp_path / "x.safetensors")]
    environment = {"PYTHONPATH": str(Path(rood.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *(str(tmp_path / n) for n in said)], check=True, env=environment)
    for name, decision in said.items():
        again = guard_folder.checkpoint.read_tensors(tmp_path / name / "again.safetensors")
        assert same(decision, [again[k] for k in decision._fields]), name
        assert decision.accept.any(), name
        assert not decision.accept.all(), name


def test_the_folder_holds_plain_files_and_says_what_they_are(saved):
    guard, path = saved
    names = ["detector.safetensors", "guard.json", "network.json", "network.safetensors"]
    assert sorted(p.name for p in path.iterdir()) == names
    card = json.loads((path / "guard.json").read_text())
    assert card["detector"] == {"class": "KNN", "model": {"network": 0}, "k": 5}
    assert card["classes"] == list(CLASSES)
    assert card["shape"] == [3, 8, 8]
    again = Guard.load(path)
    assert again.calibration == guard.calibration
    assert again.classes == CLASSES
    assert again.about == {"why": "to test"}
    assert again.save(path) == card["sha256"]
    assert not again.detector.training


def test_rood_has_the_guard_by_name(saved):
    label, score, accept = rood.Guard.load(str(saved[1]))(mixed())
    assert same((label, score, accept), saved[0](mixed()))


def loading_is_refused(path, words=" ", kind=CheckpointError, **options):
    refused(kind, words, Guard.load, path, **options)


FILES = ("detector.safetensors", "guard.json", "network.json", "network.safetensors")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.99])
def test_one_changed_bit_is_refused(saved, name, where):
    file = saved[1] / name
    content = bytearray(file.read_bytes())
    place = int(where * len(content))
    if name == "guard.json":  # a space more or less means the same
        place = next(i for i in range(place, len(content)) if chr(content[i]).isalnum())
    content[place] ^= 1
    file.write_bytes(content)
    loading_is_refused(saved[1])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 10, -3])
def test_a_file_cut_short_is_refused(saved, name, keep):
    file = saved[1] / name
    file.write_bytes(file.read_bytes()[:keep])
    loading_is_refused(saved[1], "JSON" if name == "guard.json" else "changed or cut short")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved, name):
    (saved[1] / name).unlink()
    loading_is_refused(saved[1], f"found no {name}" if name == "guard.json" else repr(name))


def test_what_is_no_guard_is_refused(tmp_path):
    loading_is_refused(tmp_path / "gone", "expected a guard in")
    (tmp_path / "guard.json").write_text("{}")
    loading_is_refused(tmp_path, "expected a guard's card")
    (tmp_path / "guard.json").write_text("[" * 100_000)
    loading_is_refused(tmp_path, "damaged or not JSON")
    loading_is_refused(tmp_path / "guard.json", "expected a guard in")


def forge(path, **changes):
    """Somebody who knows how the hash is made."""
    file = path / "guard.json"
    card = json.loads(file.read_text()) | changes
    card.pop("sha256")
    text = json.dumps(card, sort_keys=True)
    card["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(card))


@pytest.mark.parametrize(
    "detector",
    [
        {"class": "os.system", "model": {"network": 0}},
        {"class": "Detector", "model": {"network": 0}},
        {"class": "OutputDetector", "model": {"network": 0}},
        {"class": "fit_all", "model": {"network": 0}},
        {"class": "registry"},
        {"class": 3},
        {"class": "KNN", "model": {"network": 0}},
        {"class": "KNN", "model": {"network": 0}, "k": 5, "more": 1},
        {"class": "KNN", "model": {"network": 0}, "k": "5"},
        {"class": "KNN", "model": {"network": 0}, "k": True},
        {"class": "KNN", "model": {"network": 0}, "k": 0},
        {"class": "KNN", "model": {"network": 1}, "k": 5},
        {"class": "KNN", "model": {"network": -1}, "k": 5},
        {"class": "KNN", "model": {"network": True}, "k": 5},
        {"class": "KNN", "model": "network", "k": 5},
        {"class": "KNN", "model": [], "k": 5},
        {"class": "KNN", "model": {"class": "MSP"}, "k": 5},
        {"class": "KNN", "model": [{"network": 0}], "k": 5},
        {"class": "KNN", "model": {"network": 0}, "k": {"network": 0}},
        {"class": "Gram", "model": {"network": 0}, "orders": 1, "layers": ["no.such"]},
        {"class": "Mahalanobis", "model": {"network": 0}, "pooling": "none"},
        {"class": "MSP", "model": {"network": 0}, "temperature": 1.0},
        [],
        None,
    ],
)
def test_only_registered_classes_with_checked_arguments_are_built(saved, detector):
    forge(saved[1], detector=detector)
    with as_in_production():
        loading_is_refused(saved[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {}},
        {"files": {"detector.safetensors": "0"}},
        {"files": {"../guard/detector.safetensors": "0", "detector.safetensors": "0"}},
        {"networks": []},
        {"networks": [{}]},
        {"networks": 3},
        {"calibration": {"threshold": 1.0}},
        {"calibration": {"rate": 0.5, "n": 1, "rank": 1, "threshold": "1", "rejected": 0}},
        {"shape": [1]},
        {"shape": "abc"},
        {"classes": ["a"]},
        {"format": 2},
        {"format": "1"},
    ],
)
def test_a_card_that_cannot_be_followed_is_refused(saved, changes):
    forge(saved[1], **changes)
    loading_is_refused(saved[1])


def test_a_file_that_is_not_the_guards_is_not_read(saved, model, tmp_path):
    """The hash of another folder's network beside this one's fingerprint."""
    guarded(MSP(other())).save(tmp_path / "other")
    for name in ("network.safetensors", "network.json"):
        (saved[1] / name).write_bytes((tmp_path / "other" / name).read_bytes())
    files = json.loads((tmp_path / "other" / "guard.json").read_text())["files"]
    mine = json.loads((saved[1] / "guard.json").read_text())["files"]
    forge(saved[1], files=files | {"detector.safetensors": mine["detector.safetensors"]})
    loading_is_refused(saved[1], "another network than the guard's")


def test_half_a_guard_is_none(saved, monkeypatch):
    def stopped(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(guard_folder.checkpoint, "write_tensors", stopped)
    refused(CheckpointError, "No space left on device", saved[0].save, saved[1])
    loading_is_refused(saved[1], "found no guard.json")


def test_what_json_cannot_hold_is_refused_before_anything_is_written(model, tmp_path):
    guard = guarded(MSP(model), about={"made by": object()})
    refused(InputError, "what JSON can hold in about", guard.save, tmp_path / "guard")
    assert not (tmp_path / "guard").exists()


def test_a_place_that_cannot_be_written_is_named(saved, tmp_path):
    (tmp_path / "file").write_text("")
    refused(CheckpointError, "cannot write a guard to", saved[0].save, tmp_path / "file")


# --- other people's networks


def test_a_network_of_others_is_known_by_its_hash(world, tmp_path):
    guard = Guard.calibrated(KNN(world.model, k=5).fit(world.train), world.train)
    path = tmp_path / "guard"
    guard.save(path)
    assert sorted(p.name for p in path.iterdir()) == ["detector.safetensors", "guard.json"]
    x = torch.cat([world.inside, world.outside])
    loading_is_refused(path, "a Sequential that the guard", CapabilityError)
    for net in (world.model, world.model.net, [world.model.net]):
        assert same(Guard.load(path, model=net)(x), guard(x))
    renormalised = wrap(world.model.net, mean=(0.5,) * 3, std=(0.25,) * 3)
    words = "expected the network that the guard was made with"
    loading_is_refused(path, words, CapabilityError, model=renormalised)
    with torch.no_grad():
        world.model.net[0].weight[0, 0, 0, 0] += 1e-6
    loading_is_refused(path, words, CapabilityError, model=world.model)
    loading_is_refused(path, "no linear layer is called", model=torch.nn.Linear(3, 3))


def test_the_zero_shot_detector_comes_back_with_its_network(model, tmp_path):
    guard = guarded(example(registry.get("clip"))(model))
    guard.save(tmp_path)
    again = Guard.load(tmp_path, model=guard.model)
    assert same(again(mixed()), guard(mixed()))


def test_weights_in_float64_are_not_rounded(model, tmp_path):
    double = wrap(small_model().net.double(), mean=(0.4,) * 3, std=(0.25,) * 3)
    halves = [(x.double(), y) for x, y in batches()]
    guard = Guard.calibrated(KNN(double, k=5).fit(halves), halves)
    guard.save(tmp_path)
    assert not (tmp_path / "network.safetensors").exists()
    x = mixed().double()
    assert same(Guard.load(tmp_path, model=double)(x), guard(x))


def test_a_detector_of_ones_own_is_not_saved(model, tmp_path):
    guard = Guard.calibrated(Broken(model), batches())
    refused(CapabilityError, "got Broken, which could not be loaded again", guard.save, tmp_path)
    assert not list(tmp_path.iterdir())
    inside = Guard.calibrated(PRO(Broken(model), steps=0), batches())
    refused(CapabilityError, "got Broken", inside.save, tmp_path)

    class KNN(Broken):
        """Somebody else's."""

    refused(CapabilityError, "got KNN", Guard.calibrated(KNN(model), batches()).save, tmp_path)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_decision_does_not_depend_on_the_batch(model, size):
    guard = guarded(KNN(model, k=5))
    whole = guard(mixed())
    parts = [guard(p) for p in mixed().split(size)]
    scores = torch.cat([p.score for p in parts])
    torch.testing.assert_close(scores, whole.score, rtol=1e-5, atol=1e-5)
    assert list(chain(*(p.label.tolist() for p in parts))) == whole.label.tolist()
