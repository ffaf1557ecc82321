"""What may not be copied is left out of a receipt, which stays the same receipt."""

import shutil
from dataclasses import replace

import pytest
from lies import attacked_image, copied

from rood.errors import ResultsError
from rood.receipts.receipt import Receipt
from rood.receipts.stripping import LEFT_OUT, restore, strip
from rood.receipts.verify import verify


@pytest.fixture
def bare(receipt, tmp_path):
    """A receipt without its attacked images and weights."""
    folder = copied(receipt, tmp_path / "bare")
    strip(Receipt(folder))
    return folder


def test_a_stripped_receipt_is_the_same_receipt_and_still_whole(receipt, bare):
    assert not any((bare / part).exists() for part in LEFT_OUT)
    assert Receipt(bare).digest == Receipt(receipt).digest
    assert Receipt(bare).rows() == Receipt(receipt).rows()
    assert {f.status for f in verify(bare)} == {"pass"}
    assert any((receipt / part).exists() for part in LEFT_OUT)


def test_what_is_left_out_is_open_and_the_rest_is_scored_again(bare, given, files):
    lacking = {f.check: f for f in verify(bare, "rescore", given)}
    assert (lacking["weights"].status, "fail" in {f.status for f in lacking.values()}) == (
        "open",
        False,
    )
    assert "only their SHA-256" in lacking["weights"].sentence
    mine = replace(given, models={"": str(files / "net.safetensors")})
    found = {f.check: f.status for f in verify(bare, "rescore", mine) if f.tier == "rescore"}
    assert {c for c, s in found.items() if s == "open"} == {"threat", "attacked scores"}
    assert found["clean scores"] == found["fitted"] == "pass"


def test_what_was_left_out_can_be_put_back(receipt, bare, given):
    before = Receipt(bare).digest
    restore(Receipt(bare), receipt)
    assert {f.status for f in verify(bare, "rescore", given)} == {"pass"}
    assert Receipt(bare).digest == before
    assert (bare / "entry.json").read_bytes() == (receipt / "entry.json").read_bytes()


def test_stripping_twice_is_stripping_once(bare):
    before = (bare / "entry.json").read_bytes()
    strip(Receipt(bare))
    assert (bare / "entry.json").read_bytes() == before


def test_other_images_are_not_put_back(receipt, bare, tmp_path):
    other = copied(receipt, tmp_path / "other")
    attacked_image(other, lambda x: x ^ 1)
    with pytest.raises(ResultsError, match="has another SHA-256"):
        restore(Receipt(bare), other)
    shutil.rmtree(other / "adversarial")
    with pytest.raises(ResultsError, match="cannot read it"):
        restore(Receipt(bare), other)
    assert {f.status for f in verify(bare)} == {"pass"}


def test_images_with_another_hash_are_not_taken_out_silently(receipt, tmp_path):
    folder = copied(receipt, tmp_path / "changed")
    image = next((folder / "adversarial").rglob("*.safetensors"))
    image.write_bytes(image.read_bytes()[:-1] + b"x")
    with pytest.raises(ResultsError, match="has another SHA-256"):
        strip(Receipt(folder))
    (folder / "adversarial" / "more.safetensors").write_bytes(b"")
    with pytest.raises(ResultsError, match=r"adversarial"):
        strip(Receipt(folder))
    assert (folder / "adversarial").exists()


def test_to_attack_again_nobody_needs_what_was_left_out(bare, given, files):
    mine = replace(given, models={"": str(files / "net.safetensors")})
    found = [f for f in verify(bare, "reattack", mine, nonce="rain") if f.tier == "reattack"]
    assert len(found) == 4  # two detectors, two sets
    assert {f.status for f in found} <= {"pass", "fail"}
    assert all("images attacked again" in f.sentence for f in found)
