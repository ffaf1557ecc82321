"""Tasks: scores and attacks of some images, and what they cost."""

from functools import partial

import pytest
from toy_audit import attacked, scores, toy_case, verdicts

from rood.attacks import APGD, PGD, RandomSearch, Square
from rood.detectors import MSP
from rood.detectors.base import OutputDetector
from rood.evaluation.tasks import metered
from rood.numerics.softmax import margin


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


@pytest.mark.parametrize("attack", [PGD(steps=2), APGD(steps=2)])
def test_a_score_without_a_gradient_does_not_stop_an_audit(case, tmp_path, monkeypatch, attack):
    monkeypatch.setattr("rood.evaluation.tasks.Square", partial(Square, queries=40))
    few = {"sides": ("outside",), "outside": {"grey": case.outside["grey"][:20]}}
    results = attacked(case, tmp_path, Cut(case.model), attack=attack, **few)
    assert verdicts(results, "outside")["zero_gradient"] == "fail"
    moved = scores(results, "d", "grey", f"{type(attack).__name__.lower()} linf:0.05")
    assert (moved["scores"] < moved["before"]).all()


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
