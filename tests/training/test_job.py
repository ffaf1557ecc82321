"""A recipe carried out: the network, its card, and what an interruption leaves."""

from pathlib import Path

import pytest
import torch
from bad_input import class_folder
from safetensors.torch import load_file

from rood.errors import RoodError
from rood.models import checkpoint
from rood.testing.world import blobs
from rood.training import job
from rood.training.loop import accuracy_of
from rood.training.objectives.aloe import ALOE
from rood.training.objectives.certified_head import CertifiedHead
from rood.training.recipe import Recipe, command
from rood.training.settings import Settings


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 300 labelled images."""
    return class_folder(
        tmp_path_factory.mktemp("images") / "inside", *blobs(300, seed=5), ("red", "green", "blue")
    )


def once(images: Path) -> Recipe:
    return Recipe(data=f"folder:{images}", settings=Settings(epochs=1))


def test_a_recipe_trains_saves_and_cleans_up(images: Path, tmp_path: Path) -> None:
    short = Recipe(
        data=f"folder:{images}",
        outliers="procedural:noise,n=40",
        backbone="small_cnn",
        architecture={"width": 4, "features": 8},
        objective=ALOE(eps=0.01, steps=1, step=0.01),
        settings=Settings(epochs=2, batch_size=60),
    )
    out = tmp_path / "net.safetensors"
    epochs = job.run(short, out, command("short"))
    next(epochs)
    epochs.close()
    assert not out.exists()
    assert len(list(job.run(short, out, command("short")))) == 2
    assert sorted(f.name for f in tmp_path.iterdir()) == ["net.json", "net.safetensors"]
    card = checkpoint.read_card(out)
    assert card["classes"] == ["blue", "green", "red"]
    facts = card["training"]
    assert facts["command"] == "rood train --name short --out short.safetensors"
    assert facts["objective"]["name"] == "aloe"
    divided = job.parts(short)
    assert facts["data"]["sha256"] == divided["fit"].fingerprint()
    assert facts["accuracy"] == round(accuracy_of(checkpoint.load(out), divided["test"]), 4)


def test_a_network_with_a_scalar_head_is_trained_and_read_again(
    images: Path, tmp_path: Path
) -> None:
    """The last linear layer of such a network is not the one of its classes."""
    short = Recipe(
        data=f"folder:{images}",
        outliers="procedural:noise,n=40",
        backbone="plain_cnn",
        architecture={"width": 2, "features": 4, "scored": True},
        objective=CertifiedHead(eps=0.01),
        settings=Settings(epochs=1, batch_size=60, optimizer="adam", lr=1e-3),
    )
    out = tmp_path / "net.safetensors"
    assert len(list(job.run(short, out, command("short")))) == 1
    model = checkpoint.load(out)
    assert model.classes == 3
    assert model.scalar_head is not None
    assert model(torch.rand(2, 3, 8, 8)).head.shape == (2,)


def test_a_kill_between_weights_and_card_is_made_good(images: Path, tmp_path: Path) -> None:
    """The state is removed last, so what is there without a card is written again."""
    out = tmp_path / "net.safetensors"
    recipe = once(images)
    for _ in job.run(recipe, out, ""):
        (tmp_path / "kept").mkdir()
        for file in (tmp_path / "net.safetensors.training").iterdir():
            (tmp_path / "kept" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "kept").rename(tmp_path / "net.safetensors.training")
    whole = checkpoint.load(out).fingerprint()
    (tmp_path / "net.json").unlink()
    assert len(list(job.run(recipe, out, ""))) == 1
    assert checkpoint.load(out).fingerprint() == whole


def test_a_class_without_training_images_is_named(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SHARES", {"fit": 0.02, "calibrate": 0.1, "test": 0.88})
    recipe = Recipe(data=f"folder:{images}")
    with pytest.raises(RoodError, match=r"expected .* got (none of|none in|\d in batches)"):
        job.parts(recipe)


def test_half_precision_on_disk_is_what_was_tested(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[str] = []
    monkeypatch.setattr(job, "accuracy_of", lambda m, _: tested.append(m.fingerprint()) or 0.5)
    recipe = once(images)
    out = tmp_path / "half.safetensors"
    list(job.run(recipe, out, "", half=True))
    kept = load_file(out)
    assert {v.dtype for v in kept.values() if v.ndim > 1} == {torch.float16}
    assert tested == [checkpoint.load(out).fingerprint()]


def test_a_training_leaves_a_folder_of_somebody_else_alone(images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.safetensors.training"
    folder.mkdir()
    (folder / "precious").write_text("mine")
    with pytest.raises(RoodError, match="found 'precious' in it: write elsewhere"):
        job.run(once(images), tmp_path / "net.safetensors", "")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RoodError, match="found a link: remove it"):
        job.run(once(images), tmp_path / "net.safetensors", "")
    assert (tmp_path / "elsewhere" / "precious").read_text() == "mine"


def test_a_second_training_into_the_same_folder_waits_or_goes_elsewhere(
    images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "net.safetensors"
    epochs = job.run(once(images), out, "")
    next(epochs)
    with pytest.raises(RoodError, match="another training is writing to"):
        next(job.run(once(images), out, ""))
    epochs.close()  # releases the lock
    assert len(list(job.run(once(images), out, ""))) == 1
