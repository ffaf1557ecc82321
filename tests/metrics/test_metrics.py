import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from rood import metrics
from rood.errors import InputError

FEW = st.lists(st.integers(0, 6), min_size=1, max_size=40)  # few values: ties everywhere
ANY = st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=60)


def thresholds(inside, outside):
    return [-float("inf"), *sorted({*inside, *outside})]


def slow_auroc(inside, outside, tie=0.5):
    won = 0.0
    for i in inside:
        for o in outside:
            won += 1 if o > i else tie if o == i else 0
    return won / (len(inside) * len(outside))


def slow_precision(positive, negative):
    """Average precision of a score that is high for the positive class."""
    area, before = 0.0, 0
    for tau in sorted({*positive, *negative}, reverse=True):
        hits = sum(1 for s in positive if s >= tau)
        false = sum(1 for s in negative if s >= tau)
        if hits > before:
            area += (hits - before) / len(positive) * hits / (hits + false)
        before = hits
    return area


def slow_fpr_in(inside, outside):
    for tau in sorted(inside):
        if sum(1 for s in inside if s <= tau) * 20 >= 19 * len(inside):
            return sum(1 for s in outside if s <= tau) / len(outside)


def slow_fpr_out(inside, outside):
    for tau in sorted(outside, reverse=True):
        if sum(1 for s in outside if s >= tau) * 20 >= 19 * len(outside):
            return sum(1 for s in inside if s >= tau) / len(inside)


def slow_detection_error(inside, outside):
    errors = []
    for tau in thresholds(inside, outside):
        alarms = sum(1 for s in inside if s > tau) / len(inside)
        missed = sum(1 for s in outside if s <= tau) / len(outside)
        errors.append((alarms + missed) / 2)
    return min(errors)


SLOW = {
    "auroc": slow_auroc,
    "aupr_in": lambda i, o: slow_precision([-s for s in i], [-s for s in o]),
    "aupr_out": lambda i, o: slow_precision(o, i),
    "fpr95_in": slow_fpr_in,
    "fpr95_out": slow_fpr_out,
    "detection_error": slow_detection_error,
}


def normal(n, shift=0.0, seed=0):
    return np.random.default_rng(seed).normal(shift, 1, n)


def sklearn_fpr(inside, outside):
    labels = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    fpr, tpr, _ = roc_curve(labels, np.r_[inside, outside], drop_intermediate=False)
    return fpr[np.argmax(tpr >= 0.95)]


def test_the_table_has_the_columns_of_the_results():
    assert list(metrics.METRICS) == list(SLOW)


@pytest.mark.parametrize("name", SLOW)
@given(inside=FEW, outside=FEW)
@settings(max_examples=60, deadline=None)
def test_each_metric_equals_its_double_loop_with_heavy_ties(name, inside, outside):
    got = metrics.METRICS[name](inside=inside, outside=outside)
    assert got == pytest.approx(SLOW[name](inside, outside), abs=1e-12)


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("levels", [3, 40, 10**6])
def test_each_metric_equals_its_double_loop_on_larger_sets(name, levels):
    rng = np.random.default_rng(levels)
    inside, outside = rng.integers(levels, size=140), rng.integers(levels, size=97) + levels // 3
    got = metrics.METRICS[name](inside=inside, outside=outside)
    assert got == pytest.approx(SLOW[name](inside.tolist(), outside.tolist()), abs=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4, 1e30])
@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_scores_of_any_size_agree_with_scikit_learn(scale, decimals):
    inside = normal(200).round(decimals) * scale
    outside = normal(300, 1.0, seed=1).round(decimals) * scale
    scores, labels = np.r_[inside, outside], np.r_[np.zeros(200), np.ones(300)]
    sides = {"inside": inside, "outside": outside}
    assert metrics.auroc(**sides) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    precision = average_precision_score(labels, scores)
    assert metrics.aupr_out(**sides) == pytest.approx(precision, abs=1e-12)
    precision = average_precision_score(1 - labels, -scores)
    assert metrics.aupr_in(**sides) == pytest.approx(precision, abs=1e-12)
    assert metrics.fpr_at_tpr_out(**sides) == pytest.approx(sklearn_fpr(inside, outside), abs=1e-12)


def test_large_logits_are_not_squashed_into_ties():
    assert metrics.auroc(inside=[20.0, 21.0], outside=[22.0, 1e9]) == 1


@pytest.mark.parametrize("n", [20, 60, 100, 140, 1000])
def test_the_opposite_fpr_equals_scikit_learn_where_95_per_cent_is_a_whole_number(n):
    inside, outside = normal(n), normal(n, 1.0, seed=1)
    got = metrics.fpr_at_tpr_out(inside=inside, outside=outside)
    assert got == sklearn_fpr(inside, outside)


@given(inside=ANY, outside=ANY)
@settings(max_examples=100, deadline=None)
def test_exchanging_the_sides_turns_auroc_over(inside, outside):
    one = metrics.auroc(inside=inside, outside=outside)
    assert one + metrics.auroc(inside=outside, outside=inside) == pytest.approx(1, abs=1e-12)


@given(inside=FEW, outside=FEW)
@settings(max_examples=60, deadline=None)
def test_metrics_only_see_the_order_of_scores(inside, outside):
    stretched = [np.exp(5.0 * np.array(s)) - 1e3 for s in (inside, outside)]
    for metric in metrics.METRICS.values():
        plain = metric(inside=inside, outside=outside)
        assert plain == metric(inside=stretched[0], outside=stretched[1])


@given(inside=ANY, outside=ANY)
@settings(max_examples=100, deadline=None)
def test_metrics_keep_their_bounds(inside, outside):
    got = {k: metric(inside=inside, outside=outside) for k, metric in metrics.METRICS.items()}
    assert all(0 <= value <= 1 for value in got.values())
    assert got["detection_error"] <= 0.5
    assert 1 - 2 * got["detection_error"] <= got["auroc"] + 1e-12
    assert got["aupr_in"] > 0
    assert got["aupr_out"] > 0


@given(inside=FEW, outside=FEW)
@settings(max_examples=60, deadline=None)
def test_the_two_conventions_of_fpr_are_mirror_images(inside, outside):
    mirrored = metrics.fpr_at_tpr_in(inside=[-s for s in outside], outside=[-s for s in inside])
    assert metrics.fpr_at_tpr_out(inside=inside, outside=outside) == mirrored


def test_the_two_conventions_of_fpr_differ_greatly_on_one_set_of_scores():
    inside = list(range(100))  # 0 to 99
    outside = [200] * 90 + [5] * 10  # nine in ten far away, one in ten deep inside
    assert metrics.fpr_at_tpr_in(inside=inside, outside=outside) == 0.10
    assert metrics.fpr_at_tpr_out(inside=inside, outside=outside) == 0.95


@pytest.mark.parametrize(("tpr", "rank"), [(0.55, 55), (0.9, 90), (0.95, 95), (0.955, 96)])
def test_the_rank_of_the_threshold_is_the_ceiling_in_decimals(tpr, rank):
    scores = np.random.default_rng(0).permutation(np.arange(1, 101))
    assert metrics.threshold_at_tpr(scores, tpr) == rank
    assert metrics.fpr_at_tpr_in(inside=scores, outside=scores, tpr=tpr) == rank / 100
    assert metrics.fpr_at_tpr_out(inside=scores, outside=scores, tpr=tpr) == rank / 100


def test_scores_that_are_all_tied_carry_no_information():
    tied = {"inside": [1.0] * 30, "outside": [1.0] * 10}
    got = {k: metric(**tied) for k, metric in metrics.METRICS.items()}
    want = [0.5, 0.75, 0.25, 1, 1, 0.5]
    assert list(got.values()) == want


def test_infinite_scores_are_ordered_like_any_other():
    inf = float("inf")
    sides = {"inside": [-inf, 0, inf], "outside": [-inf, inf, inf]}
    for name, metric in metrics.METRICS.items():
        assert metric(**sides) == pytest.approx(SLOW[name](*sides.values()), abs=1e-12)
    assert all(low <= value <= high for value, low, high in metrics.summary(**sides).values())


def test_scores_may_be_tensors_arrays_or_sequences():
    inside, outside = [0.5, 1.5, 2.0], (1.0, 3.0)
    want = metrics.summary(inside, outside, threshold=1.0)
    arrays = [np.array(s, dtype=np.float32) for s in (inside, outside)]
    assert metrics.summary(*arrays, threshold=1.0) == want
    tensors = [torch.tensor(s, requires_grad=True) for s in (inside, outside)]
    assert metrics.summary(*tensors, threshold=torch.tensor(1.0)) == want
    assert metrics.summary(*(t.bfloat16() for t in tensors), threshold=1.0) == want


def test_metrics_need_no_torch():
    code = "import sys, rood.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", SLOW)
def test_nan_and_empty_and_odd_shapes_are_refused(name):
    metric, nan = metrics.METRICS[name], float("nan")
    with pytest.raises(InputError, match="no NaN in outside scores, got 2 of 3"):
        metric(inside=[1.0], outside=[nan, 1.0, nan])
    with pytest.raises(InputError, match="no NaN in inside scores, got 1 of 1"):
        metric(inside=[nan], outside=[1.0])
    with pytest.raises(InputError, match="at least one inside score, got none"):
        metric(inside=[], outside=[1.0])
    with pytest.raises(InputError, match="at least one outside score, got none"):
        metric(inside=[1.0], outside=torch.zeros(0))
    with pytest.raises(InputError, match=r"outside scores of shape \(n,\), got \(2, 1\)"):
        metric(inside=[1.0], outside=[[1.0], [2.0]])
    with pytest.raises(TypeError):
        metric([1.0], [2.0])  # which is which must be said


def test_a_threshold_needs_enough_scores():
    assert metrics.threshold_at_tpr(range(20)) == 18
    assert metrics.threshold_at_tpr(range(10), tpr=0.9) == 8
    message = (
        "expected at least 20 in-distribution scores for a 95 % threshold, got 7: give more images"
    )
    with pytest.raises(InputError) as error:
        metrics.threshold_at_tpr(range(7))
    assert str(error.value) == message
    with pytest.raises(InputError, match="at least 20"):
        metrics.threshold_at_tpr(range(19))
    with pytest.raises(InputError, match=r"at least 100 .* for a 99 % threshold, got 99"):
        metrics.threshold_at_tpr(range(99), tpr=0.99)


@pytest.mark.parametrize("tpr", [0.0, 1.0, 95.0, -0.1, float("nan")])
def test_a_rate_outside_0_and_1_is_refused(tpr):
    with pytest.raises(InputError, match="true positive rate between 0 and 1"):
        metrics.threshold_at_tpr(range(50), tpr=tpr)
    with pytest.raises(InputError, match="true positive rate between 0 and 1"):
        metrics.fpr_at_tpr_out(inside=[1], outside=[2], tpr=tpr)


@given(scores=st.lists(st.integers(0, 9), min_size=20, max_size=60))
@settings(max_examples=60, deadline=None)
def test_the_threshold_accepts_95_per_cent_and_no_lower_score_does(scores):
    tau = metrics.threshold_at_tpr(scores)
    assert tau in scores
    assert sum(s <= tau for s in scores) * 20 >= 19 * len(scores)
    assert sum(s < tau for s in scores) * 20 < 19 * len(scores)


def test_errors_at_a_fixed_threshold_accept_a_score_equal_to_it():
    inside, outside = [0, 1, 2, 3], [1, 2, 2, 3, 4]
    assert metrics.missed_at(2, outside=outside) == 3 / 5
    assert metrics.false_alarm_at(2, inside=inside) == 1 / 4
    both = metrics.detection_error_at(2, inside=inside, outside=outside)
    assert both == pytest.approx((3 / 5 + 1 / 4) / 2)
    got = metrics.summary(inside, outside, threshold=2)
    assert got["fpr95_in_fixed"].value == 3 / 5
    assert got["fpr95_out_fixed"].value == 1 / 4
    assert got["detection_error_fixed"].value == both
    with pytest.raises(InputError, match="no NaN in threshold"):
        metrics.missed_at(float("nan"), outside=outside)


@given(inside=FEW, outside=FEW, tau=st.integers(-1, 7))
@settings(max_examples=60, deadline=None)
def test_no_fixed_threshold_beats_the_best_one(inside, outside, tau):
    best = metrics.detection_error(inside=inside, outside=outside)
    fixed = metrics.detection_error_at(tau, inside=inside, outside=outside)
    assert best <= fixed + 1e-12


def test_a_million_scores_on_each_side_take_about_a_second():
    inside, outside = normal(10**6), normal(10**6, 1.0, seed=1)
    for name, metric in metrics.METRICS.items():
        start = time.process_time()
        metric(inside=inside, outside=outside)
        assert time.process_time() - start < 1.5, name
