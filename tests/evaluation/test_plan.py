"""A plan: what it refuses, and what makes two plans different."""

import copy

import pytest
import torch
from toy_audit import audited, toy_case

from rood.detectors import MSP, DeepEnsemble, Energy, Ensemble
from rood.errors import InputError, ResultsError


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.outside = {"grey": case.outside["grey"]}
    return case


def test_another_member_of_an_ensemble_is_another_audit(case, tmp_path):
    first, second = (Ensemble([d(case.model)]) for d in (MSP, Energy))
    audited(case, tmp_path, detectors={"e": first}, threats=[])
    with pytest.raises(ResultsError, match=r"members\.0"):
        audited(case, tmp_path, detectors={"e": second}, threats=[])


def test_another_network_of_an_ensemble_is_another_audit(case, tmp_path):
    other = copy.deepcopy(case.model)
    with torch.no_grad():
        other.head.bias += 1
    deep = {"d": DeepEnsemble([case.model, case.model])}
    audited(case, tmp_path, detectors=deep, threats=[])
    with pytest.raises(ResultsError, match="networks"):
        audited(case, tmp_path, detectors={"d": DeepEnsemble([case.model, other])}, threats=[])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"detectors": {}}, "at least one detector"),
        ({"outside": {}}, "at least one out-of-distribution set"),
        ({"outside": {"inside": torch.zeros(5, 3, 8, 8)}}, "another name"),
        ({"outside": {"": torch.zeros(5, 3, 8, 8)}}, "with a name"),
        ({"outside": {"none": torch.zeros(0, 3, 8, 8)}}, "expected images in 'none', got none"),
        ({"outside": {"far": torch.full((5, 3, 8, 8), 1.5)}}, "pixels in [0, 1] in 'far'"),
        ({"calibrate": torch.zeros(19, 3, 8, 8)}, "at least 20 in-distribution images"),
        ({"sides": ("none",)}, "expected sides among"),
        ({"sides": ("both", "both")}, "expected sides among"),
        ({"sides": ()}, "expected sides among"),
        ({"seed": -1}, "seed >= 0"),
        ({"batch_size": 0}, "batch size >= 1"),
    ],
)
def test_what_cannot_be_audited_is_refused_before_anything_is_written(
    case, tmp_path, changes, words
):
    with pytest.raises(InputError) as refusal:
        audited(case, tmp_path / "out", **changes)
    assert words in str(refusal.value)
    assert not (tmp_path / "out").exists()
