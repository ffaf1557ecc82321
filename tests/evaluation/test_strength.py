"""An audit tries what is known to work, and says so when its gradient cannot be trusted."""

import copy
import json
import threading

import numpy as np
import pytest
import torch
from test_checks import attacked, verdicts
from toy_audit import audited, scores, toy_case

from rood import data
from rood.attacks import PGD, RandomSearch, WorstOf
from rood.detectors import MSP, DeepEnsemble, Energy, Ensemble
from rood.detectors.base import OutputDetector
from rood.errors import DataError, InputError, ResultsError
from rood.evaluation.manifest import full_precision
from rood.evaluation.prepare import prepare
from rood.evaluation.rows import _attack_findings
from rood.evaluation.run import Run
from rood.evaluation.settings import AuditSettings
from rood.goals import misclassify
from rood.models.wrap import wrap
from rood.numerics.softmax import margin
from rood.seeds import generator
from rood.threat import L2, Linf


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


def test_a_masked_side_is_not_diluted_by_the_other():
    usual = {"left": np.zeros(4, np.uint8), "honesty": np.ones(4), "sign": np.ones(4, np.int8)}
    usual |= {k: np.zeros(4) for k in ("control", "control_before", "control_after")}
    dead = usual | {"zero_gradient": np.ones(4, np.uint8)}
    alive = usual | {"zero_gradient": np.zeros(400, np.uint8)}
    found = {f.name: f for f in _attack_findings([dead, alive])}
    assert (found["zero_gradient"].value, found["zero_gradient"].verdict) == (1, "fail")


def test_a_score_without_a_gradient_is_audited_by_queries(case, tmp_path):
    class Cut(OutputDetector):
        def score_outputs(self, out):
            return margin(out.logits).detach()

    results = attacked(case, tmp_path, Cut(case.model), attack=RandomSearch(queries=5))
    assert verdicts(results)["zero_gradient"] == "pass"
    moved = scores(results, "d", "grey", "random_search linf:0.05")
    assert (moved["scores"] <= moved["before"]).all()
    assert moved["scores"].mean() < moved["before"].mean()


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


def test_an_image_does_not_both_set_the_threshold_and_test(case, tmp_path):
    with pytest.raises(DataError, match="calibrate and inside to share no image, got 40 of 40"):
        audited(case, tmp_path, calibrate=case.inside[0])


def test_small_gradients_do_not_slow_an_attack_in_l2():
    x = torch.full((2, 1, 4, 4), 0.5)
    for size in (1.0, 1e-15, 1e-30):
        goal = lambda v, size=size: size * v.flatten(1).sum(dim=1)
        found = PGD(steps=20)(goal, x, L2(1.0), generator(0))
        assert torch.allclose(goal(found) - goal(x), torch.full((2,), 4 * size), rtol=0.05)


def test_misclassify_is_not_stopped_by_large_logits(world):
    x = world.inside
    with torch.no_grad():
        y = world.model(x).logits.argmax(dim=1)
    sharp = copy.deepcopy(world.model)
    with torch.no_grad():
        sharp.head.weight *= 50
        sharp.head.bias *= 50
    left = []
    for model in (world.model, sharp):
        found = PGD(steps=20)(misclassify(model, y), x, L2(1.0), generator(0))
        with torch.no_grad():
            left.append((model(found).logits.argmax(dim=1) == y).float().mean().item())
    assert left[1] == pytest.approx(left[0], abs=0.05)


def test_a_budget_in_levels_instead_of_shares_is_refused():
    with pytest.raises(InputError, match="did you mean 8/255"):
        Linf(8)


def test_threads_do_not_see_each_other_s_features(world):
    model = wrap(copy.deepcopy(world.model.net))
    batches = torch.rand(4, 3, 3, 8, 8, generator=generator(0))
    expected = [model(x).features for x in batches]
    wrong = []

    def work(i):
        for _ in range(20):
            if not torch.allclose(model(batches[i]).features, expected[i], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_evaluation_computes_in_full_float32_and_puts_things_back():
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [b.allow_tf32 for b in backends]
    with full_precision():
        assert [b.allow_tf32 for b in backends] == [False, False]
        assert torch.backends.cudnn.deterministic
    assert [b.allow_tf32 for b in backends] == before


def test_training_images_are_not_tested_on():
    settings = AuditSettings(train="digits:inside", detectors=("msp",), threats=())
    with pytest.raises(DataError, match="--train and the test images to share no image"):
        prepare(settings)


def test_training_images_do_not_set_the_threshold(tmp_path):
    inside = data.load("digits:inside")
    images = data.split(inside, "threshold", calibrate=0.25, test=0.75)["calibrate"]
    np.savez(tmp_path / "train.npz", images=images.images.numpy(), labels=images.labels.numpy())
    train = f"npz:{tmp_path / 'train.npz'}"
    settings = AuditSettings(train=train, detectors=("msp",), threats=())
    with pytest.raises(DataError, match="--train and the threshold's images to share no image"):
        prepare(settings)


def test_images_that_are_done_change_no_metric(case, tmp_path, monkeypatch):
    """Left alone beyond every clean image of the other side, or climbed on for nothing."""
    plan = {"detectors": {"msp": case.detectors["msp"]}, "threats": [Linf(0.15)]}
    plan |= {"attack": WorstOf(tier="quick")}
    short = audited(case, tmp_path / "short", **plan)
    monkeypatch.setattr(Run, "_enough", lambda *_: torch.inf)
    long = audited(case, tmp_path / "long", **plan)
    cost = [json.loads((r.folder / "manifest.json").read_text())["cost"] for r in (short, long)]
    assert cost[0]["backwards"] < cost[1]["backwards"]
    metrics = [
        {(r.dataset, r.side, r.metric): r.value for r in results.rows if r.verdict != "-"}
        for results in (short, long)
    ]
    ranked = [k for k in metrics[0] if not k[2].startswith("flag_")]
    assert ranked
    assert {k: metrics[0][k] for k in ranked} == pytest.approx({k: metrics[1][k] for k in ranked})
