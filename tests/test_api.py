"""`rood.audit` refuses what would make its numbers wrong."""

import json

import pytest
from toy_audit import audited, toy_case

from rood.data.base import ImageSet, split
from rood.detectors import MSP, Mahalanobis
from rood.errors import DataError, InputError, NotFittedError
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
