"""`rood.audit` refuses what would make its numbers wrong."""

import json
from dataclasses import replace

import pytest
import torch
import toy_audit
from small_audit import small_command, small_files
from small_pictures import save
from torch.utils.data import TensorDataset
from toy_audit import audited, toy_case
from typer.testing import CliRunner

import rood
from rood.attacks import PGD, WorstOf
from rood.cli import app
from rood.data.base import ImageSet, split
from rood.detectors import MSP, Mahalanobis
from rood.errors import DataError, InputError, NotFittedError, ResultsError, RoodError, RoodWarning
from rood.evaluation.arguments import Arguments
from rood.evaluation.division import OTHERS_SHARES
from rood.evaluation.prepare import made_threats
from rood.testing.world import blobs
from rood.threat import L2, Linf


def one(case):
    return {"msp": case.detectors["msp"]}


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.outside = {"grey": case.outside["grey"]}
    return case


def test_an_image_does_not_both_set_the_threshold_and_test(case, tmp_path):
    with pytest.raises(DataError, match="calibrate and inside to share no image, got 40 of 40"):
        audited(case, tmp_path, calibrate=case.inside[0])


def test_a_size_that_the_first_image_decides_is_a_warning(case, tmp_path):
    for i in range(40):
        save(tmp_path / "pictures" / f"{i}.png", i, (8, 8) if i % 2 == 0 else (9, 11))
    images = {"inside": f"folder:{tmp_path / 'pictures'}", "detectors": one(case)}
    with pytest.warns(RoodWarning, match="resized to 8x8, that of the first.*shape to rood.data"):
        audited(case, tmp_path / "out", **images, threats=[], limit=20)


def test_detectors_must_be_fitted_and_on_the_model_given(case, world, tmp_path):
    with pytest.raises(InputError, match="'msp' to be built on the model given"):
        audited(case, tmp_path / "out", detectors={"msp": MSP(world.model)})
    with pytest.raises(NotFittedError, match="call fit"):
        audited(case, tmp_path / "out", detectors={"m": Mahalanobis(case.model)})
    assert not (tmp_path / "out").exists()


def test_python_and_the_command_do_the_same(tmp_path):
    """The same names and specs: the same rows, to the byte."""
    files = small_files(tmp_path)
    done = CliRunner().invoke(app, small_command(files, tmp_path / "command", "--limit", "20"))
    assert done.exit_code == 0, done.output
    rood.audit(
        str(files / "net.safetensors"),
        ["msp", "knn"],
        inside=files / "inside.npz",
        outside=str(files / "stripes.npz"),
        threats=[0.01, "0.05"],
        attack=PGD(steps=5),
        limit=20,
        device="cpu",
        out=tmp_path / "python",
    )
    rows = [(tmp_path / out / "rows.jsonl").read_bytes() for out in ("command", "python")]
    assert rows[0] == rows[1]
    assert rows[0].count(b'"knn"') > 10


def test_detectors_that_are_named_or_not_fitted_are_fitted_on_train(case, tmp_path):
    x, y = blobs(90, seed=21)
    usual = {"threats": [], "train": (x, y), "detectors": ["knn", Mahalanobis(case.model)]}
    results = audited(case, tmp_path, **usual)
    assert {r.detector for r in results.rows if r.metric == "auroc"} == {"knn", "mahalanobis"}
    own = Mahalanobis(case.model).fit([(x, y)])
    alone = audited(case, tmp_path / "own", threats=[], detectors={"mahalanobis": own})
    (one,), (other,) = (
        r.find(detector="mahalanobis", metric="auroc", side="none") for r in (results, alone)
    )
    assert replace(one) == replace(other)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["split"]["fit on"] == "train"
    assert manifest["split"]["fit"] == 90


def test_without_train_a_part_of_inside_fits_by_the_rule_of_the_command(case, tmp_path):
    x, y = blobs(200, seed=12)
    usual = {"threats": [], "inside": (x, y), "calibrate": None}
    audited(case, tmp_path, detectors=["knn"], **usual)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    parts = split(ImageSet("inside", x, y), **OTHERS_SHARES)
    assert {n: manifest["split"][n] for n in parts} == {n: len(p) for n, p in parts.items()}
    assert manifest["data"]["inside"]["fingerprint"] == parts["test"].fingerprint()
    given = blobs(40, seed=11)[0]
    audited(case, tmp_path / "given", detectors=["knn"], **(usual | {"calibrate": given}))
    manifest = json.loads((tmp_path / "given" / "manifest.json").read_text())
    assert manifest["split"]["fit"] == len(parts["fit"])
    assert manifest["split"]["calibrate"] == 40
    assert sum(manifest["split"][n] for n in ("fit", "test")) == 200


@pytest.mark.parametrize(
    ("outside", "names"),
    [
        (lambda x: x, ["outside"]),
        (lambda x: ImageSet("noise", x), ["noise"]),
        (lambda x: [x[:20], x[20:]], ["outside-1", "outside-2"]),
        (lambda x: [ImageSet("a", x[:20]), x[20:].numpy()], ["a", "outside-2"]),
        (lambda x: {"b": TensorDataset(x)}, ["b"]),
    ],
)
def test_outside_is_one_set_a_list_or_a_mapping(case, tmp_path, outside, names):
    given = outside(case.outside["grey"])
    results = audited(case, tmp_path, outside=given, threats=[], detectors=one(case))
    assert sorted({r.dataset for r in results.find(metric="auroc")}) == names


@pytest.mark.parametrize("given", [0.05, "0.05", "linf:0.05", [0.05], [Linf(0.05)], Linf(0.05)])
def test_budgets_are_numbers_words_or_threats(given):
    assert made_threats(given) == (Linf(0.05),)


def test_several_budgets_at_once():
    found = made_threats([8 / 255, "l2:0.5", L2(1.0)])
    assert found == (Linf(8 / 255), L2(0.5), L2(1.0))
    assert made_threats("8/255,l2:0.5") == found[:2]
    assert made_threats([]) == made_threats("none") == ()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, WorstOf(tier="quick")),
        ("standard", WorstOf(tier="standard")),
        ("full", WorstOf(tier="full")),
        ("worst_of", WorstOf()),
        ("pgd", PGD(steps=20)),
        (PGD(steps=3), PGD(steps=3)),
    ],
)
def test_attacks_are_instances_tiers_or_names(case, given, wanted):
    usual = {"model": case.model, "detectors": one(case), "inside": case.inside}
    usual |= {"outside": case.outside, "calibrate": case.calibrate, "threats": 0.05}
    assert Arguments(attack=given, **usual).plan().attack == wanted


def test_a_time_limit_is_the_deadline_of_the_run(case):
    usual = {"model": case.model, "detectors": one(case), "inside": case.inside}
    usual |= {"outside": case.outside, "calibrate": case.calibrate, "threats": 0.05}
    assert Arguments(**usual).plan().deadline is None
    plan = Arguments(**usual, time_limit="3m").plan()
    assert 120 < plan.deadline.left() < 180


def test_a_contaminated_set_is_a_warning_and_a_note(case, tmp_path):
    mixed = torch.cat([case.outside["grey"], case.inside[0][:3]])
    with pytest.warns(RoodWarning, match="mixed: 3 of 43 images are in-distribution") as caught:
        audited(case, tmp_path, outside={"mixed": mixed}, threats=[], detectors=one(case))
    assert {w.filename for w in caught} == {toy_audit.__file__}  # where rood.audit was called
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert "3 of 43 images are" in manifest["data"]["mixed"]["notes"][0]


def test_a_failed_check_stops_an_audit_that_is_not_wanted_anyway(case, tmp_path):
    x, y = case.inside
    wrong = {"inside": (x, torch.zeros_like(y)), "detectors": one(case)}
    with pytest.raises(InputError, match=r"near chance.*--anyway \(anyway=True\)"):
        audited(case, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()
    with pytest.warns(RoodWarning, match="near chance"):
        audited(case, tmp_path / "out", **wrong, anyway=True)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert any("near chance" in text for text in manifest["notes"])


def test_detectors_that_cannot_be_served_are_a_warning_and_a_note(case, tmp_path):
    x, _ = blobs(200, seed=12)
    usual = {"threats": [], "calibrate": None, "detectors": ["msp", "mahalanobis"]}
    with pytest.warns(RoodWarning, match="skipped mahalanobis: 'inside/fit' has unlabelled"):
        results = audited(case, tmp_path, inside=x, **usual)
    assert {r.detector for r in results.rows if r.detector} == {"msp"}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["skipped"] == ["mahalanobis: 'inside/fit' has unlabelled images"]


def test_nothing_is_printed(case, tmp_path, capfd):
    audited(case, tmp_path, threats=[], detectors=one(case))
    assert capfd.readouterr() == ("", "")


def test_progress_is_drawn_where_it_is_asked_for(case, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as at a terminal
    audited(case, tmp_path, threats=[], detectors=one(case), progress=True)
    said = capfd.readouterr()
    assert said.out == ""
    assert "100 %" in said.err


def test_images_that_calibrate_are_never_tested_on(case, tmp_path):
    x, y = blobs(200, seed=12)
    results = audited(case, tmp_path, inside=(x, y), calibrate=None, threats=[])
    parts = split(ImageSet("inside", x, y), "threshold", calibrate=0.25, test=0.75)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    counts = {name: len(part) for name, part in parts.items()}
    assert {k: manifest["split"][k] for k in counts} == counts
    assert sum(counts.values()) == 200
    assert not set(parts["calibrate"].hashes()) & set(parts["test"].hashes())
    for name, part in (("calibrate", "calibrate"), ("inside", "test")):
        assert manifest["data"][name]["fingerprint"] == parts[part].fingerprint()
    (row,) = results.find(detector="msp", metric="threshold")
    assert row.n_in == counts["calibrate"]


def test_groups_widen_intervals_and_nothing_else(case, tmp_path):
    n, m = len(case.inside[0]), len(case.outside["grey"])
    alone = audited(case, tmp_path / "alone", threats=[])
    ids = {"inside": [i // 5 for i in range(n)], "grey": [f"v{i // 5}" for i in range(m)]}
    grouped = audited(case, tmp_path / "grouped", groups=ids, threats=[])
    wider = 0
    for one, other in zip(alone.rows, grouped.rows, strict=True):
        assert replace(one, low=None, high=None) == replace(other, low=None, high=None)
        wider += one.low != other.low
    assert wider > 10
    manifest = json.loads((tmp_path / "grouped" / "manifest.json").read_text())
    assert f"{m // 5} groups of images" in manifest["data"]["grey"]["notes"][-1]
    before = (tmp_path / "grouped" / "rows.jsonl").read_bytes()
    (tmp_path / "grouped" / "rows.jsonl").unlink()
    audited(case, tmp_path / "grouped", groups=ids, threats=[])  # rows follow from what is on disk
    assert (tmp_path / "grouped" / "rows.jsonl").read_bytes() == before
    with pytest.raises(ResultsError, match=r"other settings \(groups differ\)"):
        audited(case, tmp_path / "grouped", threats=[])


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"grey": ["a"] * 40}, r"at least two groups in 'grey', got one \('a'\) of 40 images"),
        ({"gray": ["a"] * 40}, "no image set is called 'gray': did you mean 'grey'"),
        ({"grey": ["a", None] * 20}, "a group for each of the 40 images of 'grey', got 20"),
        ({"inside": [1, 2]}, "a group for each of the 40 images of 'inside', got 2"),
    ],
)
def test_groups_that_cannot_be_used_are_refused_before_the_audit(case, tmp_path, groups, says):
    with pytest.raises(RoodError, match=says):
        audited(case, tmp_path / "out", groups=groups)
    assert not (tmp_path / "out").exists()
