"""Data sets of the Hugging Face hub, from folders in its formats."""

import json
import sys

import pytest
import torch
from refusals import refused
from small_pictures import picture, pixels, same, save

from rood import data
from rood.errors import CapabilityError, DataError, UnknownNameError


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(CapabilityError, "needs datasets: pip install 'rood[hub]'", data.load, "hf:some/thing")
    with pytest.raises(UnknownNameError, match="no option is called 'spilt': did you mean 'split'"):
        data.load("hf:some/thing?spilt=test")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Eight images with labels in a folder as the hub has it, and as save_to_disk has it."""
    datasets = pytest.importorskip("datasets", reason="needs datasets: rood[hub]")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    lines = []
    for i in range(8):
        save(tmp_path / "hub" / "test" / f"{i}.png", i)
        lines.append(json.dumps({"file_name": f"{i}.png", "label": i % 2}))
    (tmp_path / "hub" / "test" / "metadata.jsonl").write_text("\n".join(lines))
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {"img": [str(tmp_path / "hub" / "test" / f"{i}.png") for i in range(8)]}
    rows["label"] = [i % 2 for i in range(8)]
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "disk"))
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_a_saved_data_set_is_read_by_the_types_of_its_columns(hub):
    images = data.load(f"hf:{hub}/disk")
    assert same(images, range(8))
    assert images.labels.tolist() == [0, 1] * 4
    assert images.classes == ("cat", "dog")
    some = data.load(f"hf:{hub}/disk", limit=4)
    assert same(some, (0, 2, 4, 6))
    assert some.notes == ("used 4 of 8 images, evenly spaced",)
    with pytest.raises(DataError, match=r"expected one column of images .* got img, label"):
        data.load(f"hf:{hub}/disk?image=picture")
    refused(DataError, "expected a column 'kind'", data.load, f"hf:{hub}/disk?label=kind")
    assert data.load(f"hf:{hub}/disk", groups="label").groups == ("0", "1") * 4
    says = "expected a column 'video' of groups"
    refused(DataError, says, data.load, f"hf:{hub}/disk", groups="video")


@pytest.mark.filterwarnings("ignore")
def test_a_row_without_an_image_can_be_skipped(hub):
    datasets = pytest.importorskip("datasets", reason="needs datasets: rood[hub]")
    rows = {"img": [str(hub / "hub" / "test" / "0.png"), None]}
    features = datasets.Features({"img": datasets.Image()})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(hub / "gap"))
    with pytest.raises(DataError, match=r"image 1 of .* is empty .* use --skip-bad"):
        data.load(f"hf:{hub}/gap")
    images = data.load(f"hf:{hub}/gap", skip_bad=True)
    assert same(images, [0])
    assert "1 of 2 files could not be read" in images.notes[0]


@pytest.mark.filterwarnings("ignore")
def test_a_folder_as_the_hub_has_it_is_streamed(hub):
    images = data.load(f"hf:{hub}/hub?split=test&label=label")
    assert sorted(images.labels.tolist()) == [0] * 4 + [1] * 4
    found = {a.tobytes() for a in pixels(images)}
    assert found == {picture(i).tobytes() for i in range(8)}
    some = data.load(f"hf:{hub}/hub", limit=3)
    assert len(some) == 3
    assert some.notes[0].startswith("used at most 3 images, the first of a seeded shuffle")
    assert torch.equal(some.images, data.load(f"hf:{hub}/hub", limit=3).images)


@pytest.mark.filterwarnings("ignore")
def test_splits_and_names_that_are_not_there_are_refused(hub):
    with pytest.raises(DataError, match="a data set with a split 'nothing' at"):
        data.load(f"hf:{hub}/hub?split=nothing")
    refused(DataError, "since rood is offline, got none", data.load, "hf:nobody/nothing")
