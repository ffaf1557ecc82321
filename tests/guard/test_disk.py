"""A guard on disk: a folder gives it back to the last bit, or is refused."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import refused
from safetensors.torch import save_file
from small_audit import small_model
from toy_guard import Broken, batches, guarded, mixed, same

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
    registry,
)
from rood.errors import CapabilityError, CheckpointError, InputError
from rood.guard.guard import Guard
from rood.models import checkpoint
from rood.models.wrap import wrap
from rood.testing._support import as_in_production, example

CLASSES = ("red", "green", "blue")


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture
def saved(model, tmp_path):
    """A guard with something in every file, and where it lies."""
    guard = guarded(KNN(model, k=5), classes=CLASSES, about={"why": "to test"})
    guard.save(tmp_path / "guard")
    return guard, tmp_path / "guard"


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
    words = ("clip", "neglabel")  # their example is a network that a guard does not contain
    registered = {n: example(registry.get(n)) for n in registry.names() if n not in words}
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
        again = checkpoint.read_tensors(tmp_path / name / "again.safetensors")
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

    monkeypatch.setattr(checkpoint, "write_tensors", stopped)
    refused(CheckpointError, "No space left on device", saved[0].save, saved[1])
    loading_is_refused(saved[1], "found no guard.json")


def test_what_json_cannot_hold_is_refused_before_anything_is_written(model, tmp_path):
    guard = guarded(MSP(model), about={"made by": object()})
    refused(InputError, "expected about to be serialisable as JSON", guard.save, tmp_path / "guard")
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
    words = "expected the network of the guard"
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
    refused(
        CapabilityError, "got Broken: another class could not be loaded again", guard.save, tmp_path
    )
    assert not list(tmp_path.iterdir())
    inside = Guard.calibrated(PRO(Broken(model), steps=0), batches())
    refused(CapabilityError, "got Broken", inside.save, tmp_path)

    class KNN(Broken):
        """Somebody else's."""

    refused(CapabilityError, "got KNN", Guard.calibrated(KNN(model), batches()).save, tmp_path)


def test_a_guard_written_by_rood_0_1_still_decides_the_same():
    guard = Guard.load(Path(__file__).parent / "written_by_0_1")
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    label, score, accept = guard(x * torch.linspace(0.2, 1, 6).view(6, 1, 1, 1))
    wanted = torch.tensor([0.0204734, 0.0805957, 0.0413527, 0.1835196, 0.0846058, 0.0252169])
    torch.testing.assert_close(score, wanted, rtol=1e-5, atol=1e-6)
    assert label.tolist() == [1, 1, 1, 2, 2, 1]
    assert accept.tolist() == [True, True, True, False, True, True]
    assert (guard.classes, guard.about) == (("a", "b", "c"), {"by": "rood 0.1.0"})


@pytest.mark.parametrize("name", ["guard.json", "guard.json.part", "network.json.part"])
def test_a_guard_is_written_through_no_link(saved, tmp_path, name):
    guard, folder = saved
    (tmp_path / "victim").write_text("precious")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "victim")
    if name == "guard.json":
        guard.save(folder)  # the link itself is removed first, as an old card is
        assert not (folder / name).is_symlink()
    else:
        with pytest.raises(CheckpointError, match="a link stands there"):
            guard.save(folder)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_guard_does_not_move_into_a_folder_of_somebody_else(saved, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, Path("/")):
        with pytest.raises(CheckpointError, match="an empty folder or a guard at"):
            saved[0].save(folder)
