"""Weights on disk: what is written comes back, and whatever is wrong is said in one sentence."""

import json
import os
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rood.errors import CapabilityError, CheckpointError
from rood.models import backbones, checkpoint
from rood.models.model import Model
from rood.models.wrap import wrap

CARD = {"shape": [1, 28, 28], "classes": ["0", "1", "2"], "training": {"objective": "none"}}


@pytest.fixture
def model() -> Model:
    return wrap(
        backbones.create("small_cnn", classes=3, channels=1, width=4), mean=[0.1], std=[0.3]
    )


@pytest.fixture
def file(model: Model, tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    checkpoint.save(model, path, CARD)
    return path


def change_card(file: Path, **values: object) -> None:
    path = file.with_suffix(".json")
    path.write_bytes(checkpoint.sealed(json.loads(path.read_text()) | values, checkpoint.SEAL))


def change_weights(file: Path, **tensors: torch.Tensor) -> None:
    save_file(load_file(file) | tensors, file)
    change_card(file, sha256=checkpoint.sha256_of(file))


def test_what_was_saved_comes_back(model: Model, file: Path) -> None:
    again = checkpoint.load(file)
    assert again.fingerprint() == model.fingerprint()
    assert not again.training
    assert not any(p.requires_grad for p in again.parameters())
    card = checkpoint.read_card(file)
    assert card["backbone"] == "small_cnn"
    assert card["settings"] == {"classes": 3, "channels": 1, "width": 4, "features": 64}
    assert (card["mean"], card["std"]) == ([0.1], [0.3])
    assert card["training"] == {"objective": "none"}
    assert card["sha256"] == checkpoint.sha256_of(file)


def test_nothing_but_the_two_files_is_left(file: Path) -> None:
    assert sorted(os.listdir(file.parent)) == ["net.json", "net.safetensors"]


def test_half_precision_is_for_the_disk_alone(model: Model, file: Path, tmp_path: Path) -> None:
    small = tmp_path / "half.safetensors"
    checkpoint.save(model, small, CARD, half=True)
    assert small.stat().st_size < 0.7 * file.stat().st_size
    again = checkpoint.load(small)
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again(x).logits, model(x).logits, atol=1e-2, rtol=1e-2)


def test_loading_leaves_the_global_generator_alone(file: Path) -> None:
    before = torch.random.get_rng_state()
    checkpoint.load(file)
    assert torch.equal(torch.random.get_rng_state(), before)


def refused(file: Path, match: str) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        checkpoint.load(file)
    text = str(caught.value)
    assert "\n" not in text
    assert not text.endswith(".")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "gone.safetensors", r"expected a weights file at '.*gone.*', found none")
    refused(tmp_path, "found a folder")


def test_a_missing_card_is_named(file: Path) -> None:
    file.with_suffix(".json").unlink()
    refused(file, r"expected the card .* at '.*net\.json', found none")


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", "\x80"])
def test_a_damaged_card_is_refused(file: Path, text: str) -> None:
    file.with_suffix(".json").write_bytes(text.encode("latin-1"))
    refused(file, "damaged or not JSON|expected a JSON object")


def test_a_card_that_lacks_a_key_is_refused(file: Path) -> None:
    path = file.with_suffix(".json")
    card = json.loads(path.read_text())
    del card["backbone"]
    path.write_text(json.dumps(card))
    refused(file, "lacks backbone")


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_refused(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    refused(file, "cut short or not a safetensors file")


def test_altered_weights_are_refused(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    refused(file, "does not match its card: expected sha256")


def test_an_unknown_backbone_gets_the_nearest_name(file: Path) -> None:
    change_card(file, backbone="smal_cnn")
    refused(file, "did you mean 'small_cnn'")


def test_settings_that_the_backbone_does_not_have_are_refused(file: Path) -> None:
    change_card(file, settings={"classes": 3, "channels": 1, "wideness": 4})
    refused(file, "wideness")


def test_another_number_of_classes_is_refused(file: Path) -> None:
    change_card(file, settings={"classes": 5, "channels": 1, "width": 4})
    refused(file, r"expected 'head.bias' of shape \(5,\) .*, got \(3,\)")


def test_a_tensor_too_many_is_refused(file: Path) -> None:
    change_weights(file, more=torch.zeros(1))
    refused(file, "has no place in the network for 'more'")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(file: Path, value: float) -> None:
    change_weights(file, **{"head.bias": torch.tensor([0.0, value, 0.0])})
    refused(file, "NaN or infinity in 'head.bias'")


def test_statistics_that_are_not_finite_are_refused(file: Path) -> None:
    name = "layers.1.running_var"
    change_weights(file, **{name: torch.full_like(load_file(file)[name], torch.nan)})
    refused(file, "NaN or infinity in 'layers.1.running_var'")


def test_a_newer_format_is_refused(file: Path) -> None:
    change_card(file, format=3)
    refused(file, r"has format 3, this rood reads up to 2: update rood")


def test_a_std_of_zero_is_refused(file: Path) -> None:
    change_card(file, std=[0.0])
    refused(file, "expected every std > 0")


def test_only_our_backbones_can_be_saved(model: Model, tmp_path: Path) -> None:
    net = wrap(nn.Sequential(nn.Flatten(), nn.Linear(784, 3)))
    with pytest.raises(CapabilityError, match="got Sequential"):
        checkpoint.save(net, tmp_path / "net.safetensors", CARD)
    with pytest.raises(CheckpointError, match="expected classes, shape in the card"):
        checkpoint.save(model, tmp_path / "net.safetensors", {})


def test_an_unwritable_place_is_named(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        checkpoint.save(model, tmp_path / "file" / "net.safetensors", CARD)


class Boom:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("boom",)


def test_a_state_dict_of_anybody_is_read_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.pth"
    torch.save({"w": torch.ones(2)}, path)
    assert checkpoint.load_state(path)["w"].tolist() == [1, 1]
    torch.save({"epoch": 3, "state_dict": {"w": torch.ones(2)}}, path)
    assert list(checkpoint.load_state(path)) == ["w"]
    torch.save({"w": Boom()}, path)
    with pytest.raises(CheckpointError, match="which rood never unpickles"):
        checkpoint.load_state(path)
    assert not (tmp_path / "boom").exists()
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match=r"expected tensors by name in .*, got list"):
        checkpoint.load_state(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello"])
def test_a_damaged_state_dict_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.pth"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"cut short|damaged"):
        checkpoint.load_state(path)
    with pytest.raises(CheckpointError, match="found none"):
        checkpoint.load_state(tmp_path / "gone.pth")


def test_a_truncated_state_dict_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    torch.save({"w": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(CheckpointError, match=r"cut short|damaged"):
        checkpoint.load_state(path)


def test_safetensors_of_anybody_are_read(file: Path) -> None:
    assert "head.weight" in checkpoint.load_state(file)


def rewritten(file: Path, **values: object) -> None:
    """Change the card as an editor does, which leaves its hash as it was."""
    path = file.with_suffix(".json")
    card = json.loads(path.read_text()) | values
    path.write_text(json.dumps({k: v for k, v in card.items() if v is not None}))


@pytest.mark.parametrize(
    "values",
    [{"mean": [0.2]}, {"std": [0.4]}, {"classes": ["1", "0", "2"]}, {checkpoint.SEAL: None}],
)
def test_a_card_that_was_edited_is_refused(file: Path, values: dict[str, object]) -> None:
    rewritten(file, **values)
    refused(file, r"net\.json' was changed: expected sha256")


def test_a_card_of_rood_0_1_has_no_hash(model: Model, file: Path) -> None:
    rewritten(file, **{checkpoint.SEAL: None, "format": 1})
    assert checkpoint.load(file).fingerprint() == model.fingerprint()


@pytest.mark.parametrize(
    "settings", [{"classes": 10**9}, {"width": 10**6}, {"features": -5}, {"depth": 10**9}]
)
def test_sizes_are_compared_before_anything_is_allocated(
    file: Path, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = checkpoint.read_card(file)
    change_card(file, settings=card["settings"] | settings)
    monkeypatch.setattr(backbones.Backbone, "to_empty", lambda *_, **__: pytest.fail("allocated"))
    with pytest.raises(CheckpointError):
        checkpoint.load(file)


@pytest.mark.parametrize(
    "values",
    [
        {"mean": []},
        {"mean": [0.1, 0.1]},
        {"mean": "x"},
        {"shape": [0, 28, 28]},
        {"shape": [1, 28]},
        {"classes": [["a"]]},
        {"backbone": None},
        {"format": "1"},
    ],
)
def test_entries_of_another_type_or_size_are_refused(file: Path, values: dict[str, object]) -> None:
    change_card(file, **values)
    refused(file, "expected|has format")


def test_weights_of_another_type_are_refused(file: Path) -> None:
    name = "head.bias"
    change_weights(file, **{name: torch.zeros(3, dtype=torch.int32)})
    refused(file, "expected 'head.bias' as torch.float32")
    change_weights(file, **{name: torch.zeros(3).to(torch.float8_e4m3fn)})
    refused(file, "expected plain numbers .*: save it as float32")


def test_a_packed_state_dict_is_refused_before_it_grows(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.pth", tmp_path / "packed.pth"
    torch.save({"x": torch.zeros(100_000)}, plain)
    assert set(checkpoint.load_state(plain)) == {"x"}
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(CheckpointError, match=r"not packed, got .*: save network\.state_dict\(\)"):
        checkpoint.load_state(packed)
