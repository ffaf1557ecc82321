"""Tasks: scores and attacks of some images, and what they cost."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from toy_audit import attacked, measured, scores, toy_case, verdicts

from rood.attacks import APGD, PGD, RandomSearch, Square
from rood.data.base import ImageSet
from rood.detectors import MSP
from rood.detectors.base import Detector, OutputDetector
from rood.evaluation.tasks import SetAttack, metered
from rood.numerics.softmax import margin
from rood.threat import Linf


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.outside = {"grey": case.outside["grey"]}
    return case


class Rounded(OutputDetector):
    """No gradient of its own, and a surrogate that has one."""

    gradient = "surrogate"

    def score_outputs(self, out):
        return (1e5 * margin(out.logits)).round() / 1e5

    def surrogates(self):
        return (MSP(self.model).score_images,)


class Diluted(OutputDetector):
    """The right score, whose gradient has another function's mixed in."""

    def score_outputs(self, out):
        s, other = margin(out.logits), 0.5 * (out.features**2).sum(dim=1)
        return s + other - other.detach()


def both(results):
    (row,) = results.find(metric="auroc", side="both")
    return row.value


def test_surrogates_are_attacked_too(case, tmp_path):
    honest = both(attacked(case, tmp_path / "a", MSP(case.model)))
    rounded = both(attacked(case, tmp_path / "b", Rounded(case.model)))
    assert rounded == pytest.approx(honest, abs=0.02)


def test_a_gradient_with_another_mixed_in_is_found(case, tmp_path):
    assert verdicts(attacked(case, tmp_path / "a", MSP(case.model)))["untrue_gradient"] == "pass"
    found = verdicts(attacked(case, tmp_path / "b", Diluted(case.model)))
    assert found["untrue_gradient"] == "fail"


class Cut(OutputDetector):
    def score_outputs(self, out):
        return margin(out.logits).detach()


def test_a_score_without_a_gradient_is_audited_by_queries(case, tmp_path):
    results = attacked(case, tmp_path, Cut(case.model), attack=RandomSearch(queries=5))
    assert verdicts(results)["zero_gradient"] == "pass"
    moved = scores(results, "d", "grey", "random_search linf:0.05")
    assert (moved["scores"] <= moved["before"]).all()
    assert moved["scores"].mean() < moved["before"].mean()


class CutButForAParameter(Cut):
    def __init__(self, model):
        super().__init__(model)
        self.scale = nn.Parameter(torch.ones(()))

    def score_outputs(self, out):
        return self.scale * super().score_outputs(out)


@pytest.mark.parametrize(
    ("attack", "cut"), [(PGD(steps=2), Cut), (APGD(steps=2), CutButForAParameter)]
)
def test_a_score_without_a_gradient_does_not_stop_an_audit(
    case, tmp_path, monkeypatch, attack, cut
):
    monkeypatch.setattr("rood.evaluation.tasks.Square", partial(Square, queries=40))
    few = {"sides": ("outside",), "outside": {"grey": case.outside["grey"][:20]}}
    results = attacked(case, tmp_path, cut(case.model), attack=attack, **few)
    assert verdicts(results, "outside")["zero_gradient"] == "fail"
    moved = scores(results, "d", "grey", f"{type(attack).__name__.lower()} linf:0.05")
    assert (moved["scores"] < moved["before"]).all()


class OffGrid(Detector):
    """Frozen wherever a pixel is no whole level: only 8-bit images show the score."""

    def score_images(self, x):
        off = (255 * x - (255 * x).round()).abs().flatten(1).amax(dim=1) > 1e-3
        return torch.where(off, -10.0, margin(self.model(x).logits))


def test_what_rounding_and_controls_find_is_part_of_the_result(case):
    whole = lambda x: (255 * x).round() / 255
    inside, outside = whole(case.inside[0]), whole(case.outside["grey"])
    arrays, _ = measured(OffGrid(case.model), inside, outside, threat=Linf(13 / 255))
    assert (arrays["scores"] >= arrays["alone"]).all()
    assert (arrays["scores"] > arrays["alone"]).mean() > 0.5
    controls = np.maximum(arrays["control"], arrays["rounded"])
    assert (arrays["control_best"] >= controls).all()


def test_the_images_kept_for_the_page_have_the_scores_of_the_result(case):
    detector = OffGrid(case.model)
    images = ImageSet("inside", (255 * case.inside[0]).round() / 255)
    attack = SetAttack(
        detector, images, "inside", PGD(steps=2), Linf(13 / 255), ("d",), seed=0, batch_size=64
    )
    ((arrays, looks),) = attack.run()
    with torch.no_grad():
        again = detector.score(torch.as_tensor(looks["attacked"]))
    np.testing.assert_allclose(again, arrays["scores"][looks["places"]], rtol=1e-5, atol=1e-5)


class Remembering(OutputDetector):
    """Raises the score of whatever it is asked about often."""

    def __init__(self, model):
        super().__init__(model)
        self.calls = 0

    def score_outputs(self, out):
        self.calls += 1
        return margin(out.logits) + 0.1 * self.calls


def test_a_detector_that_remembers_queries_is_found(case, tmp_path):
    assert verdicts(attacked(case, tmp_path, Remembering(case.model)))["score_drifts"] == "fail"


class Jittery(OutputDetector):
    """Noise that is declared, as large as the differences between images."""

    stochastic = True

    def __init__(self, model):
        super().__init__(model)
        self.source = torch.Generator().manual_seed(0)

    def score_outputs(self, out):
        s = margin(out.logits)
        return s + 2 * torch.randn(len(s), generator=self.source)


def test_a_declared_stochastic_detector_does_not_fail_for_that(case, tmp_path):
    found = verdicts(attacked(case, tmp_path, Jittery(case.model)))
    assert {found[n] for n in ("two_calls_differ", "score_drifts", "batch_matters")} <= {
        "pass",
        "warn",
    }
    assert found["random_search_wins"] == "pass"
    assert found["untrue_gradient"] == "pass"


def test_the_meter_counts_images_forwards_and_backwards_and_lets_go(case):
    x = case.inside[0][:5]
    with metered(case.model) as cost:
        case.model(x)
        odin = case.detectors["odin"].score(x)  # a forward and a backward pass, then a forward
        probe = x.clone().requires_grad_()
        case.model(probe).logits.sum().backward()
    assert len(odin) == 5
    assert (cost.forwards, cost.backwards) == (20, 10)
    assert cost.seconds > 0
    case.model(x)
    assert cost.forwards == 20
