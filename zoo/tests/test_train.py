"""`python -m rood_zoo.train`."""

from bad_input import class_folder
from refusals import refused

from rood.errors import CheckpointError, DataError, InputError
from rood.testing.world import blobs
from rood.training import job, recipe
from rood_zoo import train


def test_networks_are_trained_in_one_go_and_an_interrupted_run_continues(
    tmp_path, monkeypatch, capsys
):
    images = class_folder(tmp_path / "inside", *blobs(300, seed=5), ("red", "green", "blue"))
    monkeypatch.setenv("ROOD_ZOO", str(tmp_path))
    (tmp_path / "recipes.toml").write_text(
        f'[tiny-a]\ndata = "folder:{images}"\narchitecture = {{ width = 4 }}\n'
        "settings = { epochs = 2, batch_size = 30 }\n"
        '[tiny-b]\nlike = "tiny-a"\ndata = "folder:nowhere"\n'
    )
    assert train.chosen(["tiny-*", "tiny-a"], recipe.names()) == ["tiny-a", "tiny-b"]
    refused(InputError, "expected networks for 'none-", train.chosen, ["none-*"], recipe.names())
    weights = tmp_path / "tiny-a.safetensors"
    again = lambda name: job.run(recipe.get(name), tmp_path / f"{name}.safetensors", "", half=True)
    epochs = again("tiny-a")
    next(epochs)
    epochs.close()
    assert train.train_one("tiny-a", tmp_path, "cpu")
    assert not train.train_one("tiny-b", tmp_path, "cpu")
    before = weights.stat().st_mtime_ns
    assert train.train_one("tiny-a", tmp_path, "cpu")
    assert weights.stat().st_mtime_ns == before
    assert "tiny-b failed: expected a folder of images" in capsys.readouterr().out
    weights.with_suffix(".json").unlink()
    assert not train.complete(weights)
    assert train.train_one("tiny-a", tmp_path, "cpu")
    refused(CheckpointError, "expected no network", again, "tiny-a")
    refused(DataError, "nowhere", again, "tiny-b")
