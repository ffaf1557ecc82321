"""A flipped bit that no checksum covers is noticed."""

import shutil
from pathlib import Path

from campaign import flips
from rood.models import checkpoint


def test_a_missing_checksum_of_weights_is_noticed(small, monkeypatch):
    folder, file = small.reference("train"), Path("net.safetensors")
    folder.mkdir(parents=True)
    for name in ("net.safetensors", "net.json"):
        shutil.copy(small.files / name, folder)
    flip = lambda seed: flips.flipped(small, "train", folder, file, seed).kind
    assert {flip(seed) for seed in range(4)} == {"clean error"}
    known = checkpoint.sha256_of(folder / file)
    monkeypatch.setattr(checkpoint, "sha256_of", lambda _: known)
    assert "silently wrong" in {flip(seed) for seed in range(4)}


def test_readers_are_compared_with_what_the_whole_file_gives(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    read = Path.read_text
    ask = lambda name: flips._read(read, tmp_path / "a", tmp_path / name).kind
    assert (ask("a"), ask("b"), ask("gone")) == ("identical", "silently wrong", "traceback")
