"""An audit's rows are complete, right, and depend on nothing but what was asked."""

import itertools

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from toy_audit import ATTACK, THREATS, N, audited, scores

from rood import metrics
from rood.detectors import MSP
from rood.errors import InputError
from rood.evaluation.rows import SIDES
from rood.goals import look_in, look_out
from rood.seeds import generator
from rood.threat import L2, Linf

FIXED = ("fpr95_in_fixed", "fpr95_out_fixed", "detection_error_fixed")


ATTACKS = ("zero_gradient", "untrue_gradient", "rough_score", "many_optima", "custom_backward")


SCORES = ("two_calls_differ", "score_drifts", "batch_matters", "lost_by_rounding")


OTHERS = (
    *("left_the_threat_model", "random_search_wins"),
    *("transfer_beats_direct", "base_only", "far_from_zero"),
)


FLAGS = (*ATTACKS, *SCORES, *OTHERS, "tied_scores")


LARGEST = (Linf(0.07), L2(0.6))  # of each norm, where the attack is examined further


@pytest.fixture(scope="module")
def results(case, tmp_path_factory):
    return audited(case, tmp_path_factory.mktemp("audit"))


def test_every_combination_has_exactly_one_row(case, results):
    keys = [(r.detector, r.dataset, r.scenario, r.side, r.metric) for r in results.rows]
    assert len(keys) == len(set(keys))
    measured = {*metrics.METRICS, *FIXED}
    pairs = list(itertools.product(case.detectors, case.outside))
    wanted = {(d, s, "clean", "none", m) for d, s in pairs for m in measured}
    found = {f"flag_{f}" for f in (*FLAGS, "rises_with_eps", "one_side_only")}
    for (d, s), threat, side in itertools.product(pairs, THREATS, SIDES):
        more = {"flag_too_good"} if side == "both" else set()
        more |= {"flag_more_steps_gain", "flag_black_box_gains"} if threat in LARGEST else set()
        wanted |= {(d, s, f"pgd {threat}", side, m) for m in measured | found | more}
    wanted |= {(d, "inside", "clean", "none", "threshold") for d in case.detectors}
    wanted.add(("", "inside", "clean", "none", "accuracy"))
    assert set(keys) == wanted


def test_every_number_carries_n_interval_side_and_verdict(results):
    for row in results.rows:
        if row.metric == "threshold":
            assert (row.n_in, row.n_out, row.verdict) == (N, 0, "-")
            continue
        assert row.n_in == N
        assert row.n_out == (0 if row.metric == "accuracy" else N)
        attacked = row.scenario != "clean"
        assert attacked == (row.side != "none")
        assert (row.verdict in ("pass", "warn", "fail")) == attacked
        if not row.metric.startswith("flag_"):
            assert 0 <= row.low <= row.value <= row.high <= 1


def strongest(goal, x, threat, about):
    """Image by image the best of the attacks on the goal and on its variants."""
    found = [ATTACK(goal, x, threat, generator(*about))]
    for i, variant in enumerate(goal.variants):
        found.append(ATTACK(variant, x, threat, generator(*about, "variant", i)))
    with torch.no_grad():
        values = torch.stack([goal(f) for f in found])
    return torch.stack([found[k][i] for i, k in enumerate(values.argmax(dim=0).tolist())])


@pytest.mark.parametrize("name", ["msp", "odin"])
def test_values_equal_a_plain_loop_over_the_definition(case, results, name):
    detector = case.detectors[name]
    x_in = case.inside[0]
    for threat, (dataset, x_out) in itertools.product(THREATS, case.outside.items()):
        about = lambda s, t=threat: (0, "model", name, s, str(t))
        moved_in = strongest(look_out(detector), x_in, threat, about("inside"))
        moved_out = strongest(look_in(detector), x_out, threat, about(dataset))
        with torch.no_grad():
            clean = detector.score(x_in), detector.score(x_out)
            moved = detector.score(moved_in), detector.score(moved_out)
        # the attack alone reaches `moved`; its rounded and its examined images may go further
        files = [scores(results, name, s, f"pgd {threat}") for s in ("inside", dataset)]
        for file, alone, sign in zip(files, moved, (1, -1), strict=True):
            np.testing.assert_allclose(file["alone"], alone, rtol=1e-5, atol=1e-5)
            assert (sign * (file["scores"] - file["alone"]) >= 0).all()
        final = tuple(torch.as_tensor(file["scores"]) for file in files)
        pairs = {"outside": (clean[0], final[1]), "inside": (final[0], clean[1]), "both": final}
        for side, (inside, outside) in pairs.items():
            for metric, function in metrics.METRICS.items():
                where = {"detector": name, "dataset": dataset, "scenario": f"pgd {threat}"}
                (row,) = results.find(**where, side=side, metric=metric)
                assert row.value == pytest.approx(function(inside=inside, outside=outside))


def test_both_sides_attacked_is_never_better_than_one_and_one_never_better_than_none(results):
    aurocs = results.find(metric="auroc")
    value = {(r.detector, r.dataset, r.scenario, r.side): r.value for r in aurocs}
    for (d, s, scenario, side), auroc in value.items():
        if side == "both":
            sides = [value[d, s, scenario, one] for one in ("inside", "outside")]
            assert auroc <= min(sides) + 1e-9
            assert max(sides) <= value[d, s, "clean", "none"] + 1e-9
            assert auroc < value[d, s, "clean", "none"]


def test_outside_images_move_in_and_inside_images_move_out(case, results):
    for name, threat in itertools.product(case.detectors, THREATS):
        for dataset, sign in (("inside", 1), ("stripes", -1)):
            clean = scores(results, name, dataset, "clean")["scores"]
            moved = scores(results, name, dataset, f"pgd {threat}")
            assert (sign * (moved["scores"] - clean) >= -1e-4).all()
            assert (sign * (moved["scores"] - clean)).mean() > 0
            np.testing.assert_allclose(moved["before"], clean, rtol=1e-4, atol=1e-5)


def test_without_threats_the_audit_is_clean(case, tmp_path):
    results = audited(case, tmp_path, threats=[])
    assert {r.scenario for r in results.rows} == {"clean"}
    assert {r.verdict for r in results.rows} == {"-"}
    assert len(results.find(metric="auroc")) == 6
    assert (tmp_path / "report.html").exists()
    assert not (tmp_path / "examples").exists()


def test_batch_size_changes_no_score(case, results, tmp_path):
    few = {"outside": {"grey": case.outside["grey"]}, "threats": [Linf(0.07)]}
    small = audited(case, tmp_path, **few, batch_size=17)
    files = sorted(p.relative_to(tmp_path) for p in tmp_path.glob("scores/**/*.safetensors"))
    assert len(files) == 3 * (3 + 2)  # detectors, sets clean and attacked
    for file in files:
        one, other = load_file(tmp_path / file), load_file(results.folder / file)
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=1e-4, atol=1e-4)
    where = {"dataset": "grey", "metric": "auroc"}
    for row in small.find(**where):
        (same,) = results.find(**where, detector=row.detector, scenario=row.scenario, side=row.side)
        assert row.value == pytest.approx(same.value, abs=1e-3)


def test_other_detectors_and_their_order_change_no_byte(case, results, tmp_path):
    lines = [r.line() for r in results.find(detector="knn")]
    alone = audited(case, tmp_path / "alone", detectors={"knn": case.detectors["knn"]})
    assert [r.line() for r in alone.find(detector="knn")] == lines
    turned = {
        "detectors": dict(reversed(case.detectors.items())),
        "outside": dict(reversed(case.outside.items())),
        "threats": THREATS[::-1],
    }
    other = audited(case, tmp_path / "turned", **turned)
    assert sorted(r.line() for r in other.rows) == sorted(r.line() for r in results.rows)


def test_equal_budgets_are_attacked_once(case, tmp_path):
    one = {"detectors": {"msp": case.detectors["msp"]}}
    results = audited(case, tmp_path, **one, threats=[Linf(0.02), Linf(0.02)])
    assert len(results.find(metric="auroc", side="both")) == 2


def test_the_threshold_comes_from_the_calibrating_images_alone(case, results):
    for name, detector in case.detectors.items():
        with torch.no_grad():
            ordered = detector.score(case.calibrate).sort().values
        (row,) = results.find(detector=name, metric="threshold")
        assert row.value == pytest.approx(float(ordered[38 - 1]))  # 0.95 * 40 = 38 are kept


def test_metrics_at_the_fixed_threshold_are_counts(results):
    (threshold,) = results.find(detector="knn", metric="threshold")
    inside = scores(results, "knn", "inside", "pgd linf:0.07")["scores"]
    outside = scores(results, "knn", "grey", "pgd linf:0.07")["scores"]
    missed = sum(s <= threshold.value for s in outside.tolist()) / N
    alarms = sum(s > threshold.value for s in inside.tolist()) / N
    where = {"detector": "knn", "dataset": "grey", "scenario": "pgd linf:0.07", "side": "both"}
    values = [results.find(**where, metric=m)[0].value for m in FIXED]
    assert values == pytest.approx([missed, alarms, (missed + alarms) / 2])


@pytest.mark.parametrize("threats", [[], [Linf(0.05)]])
def test_a_score_that_is_no_number_names_its_detector(case, tmp_path, threats):
    class Odd(MSP):
        def score_outputs(self, out):
            return super().score_outputs(out).where(out.logits[:, 0] > 0, torch.nan)

    words = r"scores of 'odd' on 'model', got NaN \d+ times for 'calibrate', clean: leave it out"
    detectors = {"msp": case.detectors["msp"], "odd": Odd(case.model)}
    with pytest.raises(InputError, match=words):
        audited(case, tmp_path, detectors=detectors, threats=threats)


def test_accuracy_counts_labelled_images_and_needs_them(case, results, tmp_path):
    x, y = case.inside
    with torch.no_grad():
        right = (case.model(x).logits.argmax(1) == y).double().mean().item()
    (row,) = results.find(metric="accuracy")
    assert (row.value, row.n_in, row.detector) == (right, N, "")
    half = torch.where(torch.arange(N) < 30, y, -1)
    (row,) = audited(case, tmp_path / "a", inside=(x, half), threats=[]).find(metric="accuracy")
    assert (row.value, row.n_in) == (right, 30)
    assert not audited(case, tmp_path / "b", inside=x, threats=[]).find(metric="accuracy")
