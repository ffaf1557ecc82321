"""`rood.audit` refuses what would make its numbers wrong."""

import json
from dataclasses import replace

import pytest
from toy_audit import audited, toy_case

from rood.data.base import ImageSet, split
from rood.detectors import MSP, Mahalanobis
from rood.errors import DataError, InputError, NotFittedError, ResultsError, RoodError
from rood.testing.world import blobs


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.outside = {"grey": case.outside["grey"]}
    return case


def test_an_image_does_not_both_set_the_threshold_and_test(case, tmp_path):
    with pytest.raises(DataError, match="calibrate and inside to share no image, got 40 of 40"):
        audited(case, tmp_path, calibrate=case.inside[0])


def test_detectors_must_be_fitted_and_on_the_model_given(case, world, tmp_path):
    with pytest.raises(InputError, match="'msp' to be built on the model given"):
        audited(case, tmp_path / "out", detectors={"msp": MSP(world.model)})
    with pytest.raises(NotFittedError, match="call fit"):
        audited(case, tmp_path / "out", detectors={"m": Mahalanobis(case.model)})
    assert not (tmp_path / "out").exists()


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
