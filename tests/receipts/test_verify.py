"""An honest receipt passes everywhere; every lie is found by the tier that is meant to find it."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from lies import LIES, THREAT, attacked_image, copied, edited, measured, recounted, sealed_again

import rood
from rood import api
from rood.errors import CapabilityError, RoodWarning, UnknownNameError
from rood.evaluation.plan import EVERY
from rood.evaluation.settings import AuditSettings
from rood.models import checkpoint
from rood.receipts.entry import misnamed, sealed
from rood.receipts.receipt import Receipt
from rood.receipts.recount import differences
from rood.receipts.rescoring import Given, Witness
from rood.receipts.verify import verify


def test_an_honest_receipt_is_verified_wherever_it_lies(receipt, given, tmp_path):
    moved = copied(receipt, tmp_path / "elsewhere")
    found = list(verify(moved, "rescore", given))
    assert {f.status for f in found} == {"pass"}
    assert {f.tier for f in found} == {"schema", "rescore"}
    assert len(found) == 15


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_size_of_batches_is_no_lie(receipt, given, batch_size):
    found = list(verify(receipt, "rescore", replace(given, batch_size=batch_size)))
    assert {f.status for f in found} == {"pass"}


def test_audits_in_other_batches_give_receipts_that_agree(receipt, given, audited, tmp_path):
    audited(tmp_path / "audit", tmp_path / "receipt", batch_size=5)
    assert {f.status for f in verify(tmp_path / "receipt", "rescore", given)} == {"pass"}
    one, other = (Receipt(f).rows() for f in (receipt, tmp_path / "receipt"))
    aurocs = [[r.value for r in rows if r.metric == "auroc"] for rows in (one, other)]
    assert aurocs[0] == pytest.approx(aurocs[1], abs=0.01)
    assert not list(differences(one, one))


def test_images_that_a_time_limit_left_out_are_known(files, given, tmp_path, monkeypatch):
    few = {"fit": 100, "calibrate": 1000, "accuracy": 40}
    monkeypatch.setattr("rood.evaluation.prepare.clean_images", lambda *_: few)
    settings = AuditSettings(
        models=(str(files / "net.safetensors"),),
        inside=f"npz:{files / 'inside.npz'}",
        outside={"s": f"npz:{files / 'stripes.npz'}"},
        detectors=("msp", "mahalanobis"),
        threats=("linf:0.05",),
        attack="pgd",
        attack_options={"steps": 3},
        limit=12,
        time="10m",
        device="cpu",
    )
    made = api.plan(settings, tmp_path / "audit")
    api.carry_out(made, tmp_path / "audit", receipt=tmp_path / "receipt")
    entry = Receipt(tmp_path / "receipt").entry
    assert entry.named.kept == {"fit": 100}  # all of the few that calibrate
    assert entry.data[EVERY].n == 36  # a multiple of the 12 that are attacked, which are among them
    found = verify(tmp_path / "receipt", "rescore", given)
    assert not [f.sentence for f in found if f.status != "pass"]


def test_what_is_not_here_is_said_and_is_no_lie(receipt):
    found = {f.check: f for f in verify(receipt, "rescore", Given(device="cpu"))}
    assert found["data"].status == "open"
    assert "--data inside=SPEC" in found["data"].sentence
    assert "fail" not in {f.status for f in found.values()}


def test_another_network_of_the_verifier_is_refused(receipt, given):
    found = list(verify(receipt, "rescore", replace(given, models={"": "digits-ce"})))
    assert (found[-1].check, found[-1].status) == ("weights", "fail")


def test_what_the_verifier_cannot_load_is_no_lie(receipt, given):
    found = {
        f.check: f for f in verify(receipt, "rescore", replace(given, models={"": "none.pt2"}))
    }
    assert found["weights"].status == "open"
    assert "none.pt2" in found["weights"].sentence


def test_a_device_that_is_not_here_is_no_lie(receipt, given):
    with pytest.raises(CapabilityError, match="expected a device"):
        list(verify(receipt, "rescore", replace(given, device="abacus")))


def test_an_ood_set_far_away_allows_no_more_near_the_id_scores(receipt, given, tmp_path):
    folder = copied(receipt, tmp_path / "far")
    one, far = measured(folder, "inside"), measured(folder, "s")
    edited(folder, far.scores, lambda a: a | {"scores": 1e6 * np.arange(len(a["scores"]))})
    sealed_again(folder)
    ours = Receipt(folder).scores(one)
    every = np.concatenate([ours, Receipt(folder).scores(measured(folder, "calibrate"))])
    most = Witness(Receipt(folder), given).tolerance(one, ours)
    assert (most < 2e-3 * np.ptp(every) + 1e-5 * np.abs(ours)).all()


@pytest.mark.parametrize("lie", LIES, ids=lambda f: f.__name__)
def test_a_lie_is_found_by_its_tier(receipt, given, tmp_path, lie):
    folder = copied(receipt, tmp_path / "lie")
    lie(folder)
    tier, check = LIES[lie]
    *before, last = verify(folder, "rescore", given)
    assert {f.status for f in before} <= {"pass"}
    assert (last.tier, last.check, last.status) == (tier, check, "fail"), last
    assert "\n" not in last.sentence
    assert len(last.sentence) > 20


def test_fewer_than_half_of_the_lies_need_the_images(receipt, tmp_path):
    tiers = [tier for tier, _ in LIES.values()]
    assert tiers.count("schema") >= 10
    assert tiers.count("rescore") >= 10


def test_an_empty_folder_is_no_receipt(tmp_path):
    (found,) = verify(tmp_path)
    assert found.status == "fail"
    assert "rood audit --receipt" in found.sentence


def test_a_tier_has_a_name(receipt):
    with pytest.raises(UnknownNameError, match="rescore"):
        list(verify(receipt, "rescor"))


def test_a_file_that_is_cut_off_is_found(receipt, tmp_path):
    folder = copied(receipt, tmp_path / "cut")
    shutil.copy(folder / "entry.json", folder / "hashes.safetensors")
    assert [f.status for f in verify(folder)][-1] == "fail"


def test_absent_images_hide_no_lie_about_those_that_are_here(receipt, given, tmp_path):
    folder = copied(receipt, tmp_path / "lie")
    attacked_image(folder, lambda x: 255 - x)
    entry, gone = Receipt(folder).entry, measured(folder, "inside", THREAT).images
    (folder / gone).unlink()
    known = replace(entry, absent=(*entry.absent, gone))
    (folder / "entry.json").write_bytes(sealed(known))
    *_, last = verify(folder, "rescore", given)
    assert (last.check, last.status) == ("threat", "fail")


def test_a_machine_that_cannot_attack_again_refutes_nothing(receipt, given, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rood.receipts.reattack._again", full)
    found = [f for f in verify(receipt, "reattack", given, "word") if f.tier == "reattack"]
    assert {f.status for f in found} == {"open"}
    assert "No space left" in found[0].sentence


def _grouped(folder, dataset, n):
    groups = np.arange(n) // 2
    for one in Receipt(folder).entry.measured:
        if one.dataset == dataset:
            edited(folder, one.scores, lambda a: a | {"groups": groups})


def test_groups_that_nothing_names_are_found(receipt, given, tmp_path):
    folder = copied(receipt, tmp_path / "grouped")
    _grouped(folder, "inside", Receipt(folder).entry.data["inside"].n)
    recounted(folder)
    found = list(verify(folder, "rescore", given))
    assert (found[-1].tier, found[-1].check, found[-1].status) == ("rescore", "data", "fail")
    assert "grouped otherwise" in found[-1].sentence


def test_groups_of_the_accuracy_count_too(receipt, given, tmp_path):
    folder = copied(receipt, tmp_path / "grouped")
    (file,) = Receipt(folder).entry.classes.values()
    edited(folder, file, lambda a: a | {"groups": np.arange(len(a["labels"])) // 5})
    recounted(folder)
    found = list(verify(folder, "rescore", given))
    assert (found[-1].check, found[-1].status) == ("data", "fail")


def test_a_network_that_only_borrows_a_name_of_the_zoo_is_marked(files, given, tmp_path):
    net = checkpoint.load(files / "net.safetensors")
    source = {"inside": str(files / "inside.npz"), "outside": {"s": str(files / "stripes.npz")}}
    folders = {"out": tmp_path / "audit", "receipt": tmp_path / "receipt"}
    with pytest.warns(RoodWarning):  # few images
        rood.audit(net, ["msp"], name="digits-ce", **source, threats=[0.01], limit=4, **folders)
    found = {f.check: f for f in verify(tmp_path / "receipt", "rescore", given)}
    assert found["weights"].status == "pass"
    assert "'digits-ce' is not the network of the zoo" in found["weights"].sentence
    assert misnamed(Receipt(tmp_path / "receipt").entry) == ["digits-ce"]
