"""Stronger images lower a number, with the name of who made them; weaker or foreign ones do not."""

import hashlib
import json

import numpy as np
import pytest
import torch
from lies import THREAT, copied, edited, measured, recounted
from typer.testing import CliRunner

from rood.cli import app
from rood.data.base import ImageSet
from rood.errors import InputError
from rood.receipts.breaking import breaks, lowered_rows, lowest, try_images
from rood.receipts.receipt import Receipt
from rood.receipts.rescoring import Witness
from rood.receipts.verify import verify


@pytest.fixture
def weak(receipt, given, tmp_path):
    """The receipt of an attack that gave up at once, and the images that it should have found."""
    folder = copied(receipt, tmp_path / "weak")
    one = measured(folder, "s", THREAT)
    strong = Receipt(folder).arrays(one.images)["images"]
    clean = Witness(Receipt(folder), given).images("s").images.numpy()
    edited(folder, one.images, lambda a: a | {"images": clean})
    scores = Receipt(receipt).scores(measured(receipt, "s")).astype(np.float32)
    edited(folder, one.scores, lambda a: a | {"scores": scores})
    recounted(folder)
    return folder, strong


def made_by(folder, images, given, by="Ann", **which):
    tried = ImageSet("tried", torch.from_numpy(np.ascontiguousarray(images)))
    which = {"detector": "msp", "on": "s"} | which
    return list(try_images(Witness(Receipt(folder), given), tried, by, **which))


def test_a_weak_attack_is_a_valid_receipt_until_somebody_breaks_it(weak, given):
    folder, strong = weak
    assert {f.status for f in verify(folder, "rescore", given)} == {"pass"}
    m = measured(folder, "s", THREAT)
    before = lowest(lowered_rows(Receipt(folder)), m, "pgd")
    ((_, made, _),) = made_by(folder, strong, given)
    assert made.by == "Ann"
    assert made.before == pytest.approx(before)
    after = lowest(lowered_rows(Receipt(folder)), m, "pgd")
    assert after == pytest.approx(made.after)
    assert after < before - 0.01
    found = list(verify(folder, "rescore", given))
    assert {f.status for f in found} == {"pass"}
    assert "by Ann" in found[-1].sentence


def test_the_same_images_break_nothing_twice(weak, given):
    folder, strong = weak
    made_by(folder, strong, given)
    assert [made for _, made, _ in made_by(folder, strong, given, "Bob")] == [None]
    assert [b.by for b in breaks(Receipt(folder))] == ["Ann"]


def test_images_outside_the_budget_break_nothing(weak, given):
    folder, strong = weak
    far = np.where(strong < 128, strong + 60, strong - 60).astype(np.uint8)
    ((_, made, sentence),) = made_by(folder, far, given)
    assert made is None
    assert "within" in sentence


@pytest.mark.parametrize(
    ("which", "because"),
    [
        ({"on": "t"}, "expected --on with one of inside, s"),
        ({"detector": "vim"}, "expected a detector among knn, msp"),
        ({"by": " "}, "the name of who made"),
    ],
)
def test_what_cannot_be_meant_is_refused(weak, given, which, because):
    folder, strong = weak
    with pytest.raises(InputError, match=because):
        made_by(folder, strong, given, **which)


def test_fewer_images_than_the_set_has_are_refused(weak, given):
    folder, strong = weak
    with pytest.raises(InputError, match="expected 12 images, in the order of 's', got 5"):
        made_by(folder, strong[:5], given)


def test_places_that_are_no_whole_numbers_are_a_finding(weak, given):
    folder, strong = weak
    ((_, made, _),) = made_by(folder, strong, given)
    old = folder / "breaks" / f"{made.name}.safetensors"
    edited(folder, f"breaks/{made.name}.safetensors", lambda a: a | {"places": a["places"] + 0.5})
    digest = hashlib.sha256(old.read_bytes()).hexdigest()
    old.rename(old.with_name(f"{digest[:16]}.safetensors"))
    card = folder / "breaks" / f"{made.name}.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"sha256": digest}))
    card.rename(card.with_name(f"{digest[:16]}.json"))
    found = list(verify(folder, "schema", given))
    assert (found[-1].check, found[-1].status) == ("breaks", "fail")
    assert "places below" in found[-1].sentence


@pytest.mark.parametrize("change", ["after", "receipt", "images", "scores"])
def test_a_lie_about_a_break_is_found(weak, given, change):
    folder, strong = weak
    ((_, made, _),) = made_by(folder, strong, given)
    card = folder / "breaks" / f"{made.name}.json"
    if change in ("after", "receipt"):
        value = {"after": made.after - 0.2, "receipt": "0" * 64}[change]
        card.write_text(json.dumps(json.loads(card.read_text()) | {change: value}))
    else:
        file = f"breaks/{made.name}.safetensors"
        edited(folder, file, lambda a: a | {change: a[change][::-1]})
    found = list(verify(folder, "schema", given))
    assert (found[-1].check, found[-1].status) == ("breaks", "fail")


def test_the_standard_attack_finds_what_a_weak_one_missed(weak, given):
    folder, _ = weak
    found = [f for f in verify(folder, "reattack", given, "today") if f.tier == "reattack"]
    failed = [f for f in found if f.status == "fail"]
    assert "net msp on s, linf:0.05" in {f.check for f in failed}
    assert "gave up early" in failed[0].sentence
    assert any(b.how == "reattack today" for b in breaks(Receipt(folder)))
    again = list(verify(folder, "rescore", given))
    assert {f.status for f in again} == {"pass"}


def test_a_break_on_the_command_line(weak, files, tmp_path):
    folder, strong = weak
    np.savez(tmp_path / "found.npz", images=strong)
    data = [f"--data={n}=npz:{files / f}" for n, f in SETS.items()]
    words = ["break", str(folder), "--images", f"npz:{tmp_path / 'found.npz'}", "--by", "Ann"]
    said = CliRunner().invoke(app, [*words, *data, "--device", "cpu"])
    assert said.exit_code == 0, said.output
    assert "broken: net msp on s, linf:0.05: AUROC" in said.stdout
    again = CliRunner().invoke(app, [*words, *data, "--device", "cpu"])
    assert again.exit_code == 3
    assert "no number is lower" in again.stdout


SETS = {"inside": "inside.npz", "s": "stripes.npz"}
