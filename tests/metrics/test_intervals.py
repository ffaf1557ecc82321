"""Intervals against slow formulas; how often they hold the truth: tests/benchmarks."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rood import metrics
from rood.errors import InputError
from rood.metrics import intervals, resampling

FEW = st.lists(st.integers(0, 6), min_size=1, max_size=40)  # few values: ties everywhere


def normal(n, shift=0.0, seed=0):
    return np.random.default_rng(seed).normal(shift, 1, n)


def slow_delong(inside, outside):
    """AUROC and its variance from the placements of single scores, as in DeLong et al. 1988."""
    v10 = [sum((o > i) + 0.5 * (o == i) for o in outside) / len(outside) for i in inside]
    v01 = [sum((o > i) + 0.5 * (o == i) for i in inside) / len(inside) for o in outside]
    area = sum(v10) / len(v10)
    s10 = sum((v - area) ** 2 for v in v10) / (len(v10) - 1)
    s01 = sum((v - area) ** 2 for v in v01) / (len(v01) - 1)
    return area, s10 / len(v10) + s01 / len(v01)


@given(inside=FEW, outside=FEW, tau=st.integers(-1, 7))
@settings(max_examples=40, deadline=None)
def test_every_value_lies_in_its_interval(inside, outside, tau):
    got = metrics.summary(inside, outside, threshold=tau, resamples=50)
    for name, metric in metrics.METRICS.items():
        value = metric(inside=inside, outside=outside)
        assert got[name].value == pytest.approx(value, abs=1e-15)
    assert all(0 <= low <= value <= high <= 1 for value, low, high in got.values())
    assert all(low < high for _, low, high in got.values())
    assert got["detection_error"].high <= 0.5


def test_auroc_has_the_textbook_variance():
    for levels in (4, 1000):
        rng = np.random.default_rng(levels)
        inside, outside = rng.integers(levels, size=30), rng.integers(levels, size=50) + levels // 4
        got = intervals._auroc_spread(metrics.curve(inside, outside))
        assert got == pytest.approx(slow_delong(inside.tolist(), outside.tolist()), rel=1e-12)


@pytest.mark.parametrize("turn", [False, True])
def test_the_variance_of_aupr_is_that_of_the_infinitesimal_jackknife(turn):
    """Each score in turn counts a little more, by repetition of all others."""
    rng = np.random.default_rng(3)
    sides = rng.integers(30, size=20).tolist(), (rng.integers(30, size=15) + 8).tolist()
    value = lambda *weighted: _average_precision(*weighted, turn)
    ones = [np.ones(20), np.ones(15)]
    c = metrics.curve(*sides)
    area, variance = intervals._aupr_spread(c.turned() if turn else c)
    assert area == pytest.approx(value(sides, ones), abs=1e-12)
    expected, step = 0.0, 1e-5
    for side, n in enumerate((20, 15)):
        slopes = []
        for i in range(n):
            weights = [w.copy() for w in ones]
            weights[side] *= 1 - step  # the total stays: the mixture with one more of this score
            weights[side][i] += step * n
            slopes.append((value(sides, weights) - area) / step)
        expected += np.var(slopes, ddof=1) / n
    assert variance == pytest.approx(expected, rel=1e-3)


def _average_precision(sides, weights, turn):
    scores = [np.array(s) for s in sides]
    if turn:
        scores, weights = [-scores[1], -scores[0]], [weights[1], weights[0]]
    kept = lambda tau, side: weights[side][scores[side] <= tau].sum()
    precisions = [kept(tau, 0) / (kept(tau, 0) + kept(tau, 1)) for tau in scores[0]]
    return float((weights[0] * precisions).sum() / weights[0].sum())


def test_the_interval_of_fpr95_holds_what_a_search_over_thresholds_and_shares_allows():
    inside, outside = normal(60), normal(80, 1.5, seed=1)
    _, low, high = metrics.summary(inside, outside)["fpr95_in"]
    log = lambda k, n, p: k * np.log(p * n / k) + (n - k) * np.log((1 - p) * n / (n - k))
    allowed = []
    for tau in np.r_[inside, outside]:
        k, j = (inside <= tau).sum(), (outside <= tau).sum()
        if 0 < k < 60 and 0 < j < 80:
            for p in np.linspace(0.001, 0.999, 999):
                ratio = -2 * log(k, 60, 0.95) - 2 * log(j, 80, p)
                allowed += [p] if ratio <= 1.96**2 else []
    # Agresti and Coull's interval stands for that of the likelihood
    assert low == pytest.approx(min(allowed), abs=0.02)
    assert high == pytest.approx(max(allowed), abs=0.02)


def test_the_optimism_is_that_of_the_resamples_written_out():
    inside, outside = np.sort(normal(40).round(1)), np.sort(normal(60, 1.0, seed=1).round(1))
    c = metrics.curve(inside, outside)
    error = lambda tau, a, b: ((a > tau).mean() + (b <= tau).mean()) / 2
    taus = [-np.inf, *np.unique(np.r_[inside, outside])]
    for chunk in resampling.draws(40, 60, 30, 0):
        (d,) = intervals._resampled(c, iter([chunk]))
        got = intervals._optimism(c, d)
        for below_in, below_out, found in zip(*chunk, got, strict=True):
            a = np.repeat(inside, np.diff(below_in).astype(int))
            b = np.repeat(outside, np.diff(below_out).astype(int))
            errors = [error(tau, a, b) for tau in taus]
            best = int(np.argmin(np.round(errors, 12)))  # the first of equal ones
            want = error(taus[best], inside, outside) - errors[best]
            assert found == pytest.approx(want, abs=1e-12)


def test_each_resample_draws_as_many_scores_as_there_are():
    c = metrics.curve(normal(30).round(1), normal(50, 1.0, seed=1).round(1))
    drawn = list(intervals._resampled(c, resampling.draws(30, 50, 500, 0)))
    assert sum(len(d.kept_in) for d in drawn) == 500
    for d in drawn:
        assert d.kept_in.shape == d.kept_out.shape == (len(d.kept_in), c.kept_in.size)
        assert (d.kept_in[:, -1] == 30).all()
        assert (d.kept_out[:, -1] == 50).all()
        assert (np.diff(d.kept_in) >= 0).all()
    mean = np.concatenate([d.kept_in for d in drawn]).mean(axis=0)
    assert np.abs(mean - c.kept_in).max() < 0.6  # the standard error is at most 0.12


def test_the_same_seed_gives_the_same_interval_and_the_global_generator_is_left_alone():
    inside, outside = normal(50), normal(60, 1.0, seed=1)
    before = np.random.get_state()[1].tolist()
    first = metrics.summary(inside, outside)
    resampling._remembered.cache_clear()
    again = metrics.summary(inside[::-1], outside[::-1])
    assert first == again
    assert metrics.summary(inside, outside, seed=1) != first
    assert np.random.get_state()[1].tolist() == before


def test_intervals_do_not_depend_on_what_is_remembered(monkeypatch):
    inside, outside = normal(50), normal(60, 1.0, seed=1)
    first = metrics.summary(inside, outside, threshold=1.0)
    monkeypatch.setattr(resampling, "_REMEMBERED", 0)
    assert metrics.summary(inside, outside, threshold=1.0) == first


def test_perfect_separation_is_not_certainty():
    got = metrics.summary(range(50), range(100, 150), threshold=75)
    assert [round(got[name].value, 9) for name in metrics.METRICS] == [1, 1, 1, 0, 0, 0]
    # of 50 images none was wrong: up to 1 - 0.025^(1/50) = 7 % may be
    assert got["fpr95_in_fixed"].high == pytest.approx(0.0853, abs=1e-4)
    assert got["fpr95_in"].high > 0.08
    assert 0.04 < got["detection_error"].high < 0.12
    assert 0.9 < got["auroc"].low < 0.97
    assert 0.85 < got["aupr_in"].low < 0.95
    assert got["aupr_in"].low == pytest.approx(got["aupr_out"].low)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_intervals_only_see_the_order_of_scores(scale):
    inside, outside = normal(50).round(1), normal(60, 1.0, seed=1).round(1)
    assert metrics.summary(inside * scale, outside * scale) == metrics.summary(inside, outside)


def test_exchanging_the_sides_turns_the_intervals_over():
    inside, outside = normal(50).round(1), normal(60, 1.0, seed=1).round(1)
    one, other = metrics.summary(inside, outside), metrics.summary(-outside, -inside)
    for name, turned in {"auroc": "auroc", "aupr_in": "aupr_out", "fpr95_in": "fpr95_out"}.items():
        assert one[name] == pytest.approx(other[turned], abs=1e-12)


def test_one_score_on_a_side_gives_a_wide_interval():
    _, low, high = metrics.summary([0.0], normal(50, 0.5))["auroc"]
    assert high - low > 0.5


def test_wilson_gives_the_published_interval():
    # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3
    assert metrics.wilson(81 / 263, 263)[1:] == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert metrics.wilson(15 / 148, 148)[1:] == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert metrics.wilson(0.0, 20)[1:] == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert metrics.wilson(1 / 29, 29)[1:] == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_no_resamples_at_all_are_refused():
    with pytest.raises(InputError, match="at least one resample, got 0"):
        metrics.summary([1.0], [2.0], resamples=0)


def test_a_share_holds_wilsons_interval_and_more_near_0_and_1():
    for hits in (0, 1, 25, 49, 50):
        value, low, high = metrics.share_of([1] * hits + [0] * (50 - hits))
        narrow = metrics.wilson(hits / 50, 50)
        assert value == narrow.value
        assert low <= narrow.low + 1e-12
        assert high >= narrow.high - 1e-12
    assert metrics.share_of([1] + [0] * 49).low == 0 < metrics.wilson(1 / 50, 50).low


# --- groups


def test_copies_of_an_image_in_one_group_do_not_narrow_an_interval():
    inside, outside = normal(60).round(1), normal(60, 1.5, seed=1).round(1)
    alone = metrics.summary(inside, outside, threshold=1.0)
    copies, ids = [np.repeat(s, 8) for s in (inside, outside)], np.repeat(np.arange(60), 8)
    blind = metrics.summary(*copies, threshold=1.0)
    grouped = metrics.summary(*copies, threshold=1.0, groups=(ids, ids))
    for name, (value, low, high) in grouped.items():
        assert value == blind[name].value
        width, without = high - low, blind[name].high - blind[name].low
        assert without < 0.85 * width
        assert width == pytest.approx(alone[name].high - alone[name].low, rel=0.25)


def test_each_image_in_a_group_of_its_own_is_as_without_groups():
    inside, outside = normal(50), normal(60, 1.0, seed=1)
    got = metrics.summary(inside, outside, 1.0, groups=(range(50), [f"v{i}" for i in range(60)]))
    assert got == metrics.summary(inside, outside, 1.0)


def test_groups_follow_their_images_whatever_the_order_and_the_ids():
    inside, outside = normal(50), normal(60, 1.0, seed=1)
    ids = np.arange(50) // 5
    want = metrics.summary(inside, outside, 1.0, groups=(ids, None))
    assert want != metrics.summary(inside, outside, 1.0)
    names = [f"clip {i}" for i in ids]
    assert metrics.summary(inside, outside, 1.0, groups=(names, None)) == want
    turned = metrics.summary(outside, inside, 1.0, groups=(None, ids))
    assert turned != metrics.summary(outside, inside, 1.0)


def test_the_variance_of_resampled_groups_is_that_of_groups_written_out():
    ids = np.repeat(np.arange(6), [1, 2, 3, 4, 5, 6])
    ((below, _),) = resampling.group_draws(ids, np.arange(3), 200, 0)
    assert below.shape == (200, 22)
    for row in np.diff(below):
        of_group = [set(row[ids == g]) for g in range(6)]
        assert all(len(t) == 1 for t in of_group)  # all images of a group, equally often
        assert sum(t.pop() for t in of_group) == 6
    assert np.diff(below).mean() == pytest.approx(1, abs=0.1)


def test_groups_of_other_sizes_leave_the_ratio_of_the_sides_as_it_is():
    inside, outside = normal(120), normal(120, -3.0, seed=1)  # AUPR near its least value
    ids = np.repeat(np.arange(16), np.arange(16))
    got = metrics.summary(inside, outside, groups=(ids, ids))["aupr_in"]
    assert got.high - got.low < 0.1  # the share of ID images among those drawn varies by 0.1


def test_separated_groups_count_as_one_image_each():
    ids = np.repeat(np.arange(10), 20)
    got = metrics.summary(range(200), range(300, 500), 250, groups=(ids, ids))
    few = metrics.summary(range(10), range(300, 310), 250)
    for name, (_, low, high) in got.items():
        assert high - low >= few[name].high - few[name].low - 1e-9


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1] * 30, r"at least two groups of inside images, got one \(1\)"),
        (["a"] * 29, "a group for each of the 30 inside images, got 29"),
        (
            ["a"] * 20 + [""] * 8 + [None] * 2,
            "a group for each of the 30 inside images, got none for 10",
        ),
        (
            [1.0] * 29 + [float("nan")],
            "got none for 1: give an image without group an id of its own",
        ),
    ],
)
def test_groups_that_say_nothing_are_refused(ids, message):
    with pytest.raises(InputError, match=message):
        metrics.summary(normal(30), normal(30, 1.0), groups=(ids, None))


def test_the_share_of_grouped_hits_is_as_sure_as_its_groups():
    ids = np.repeat(np.arange(20), 10)
    alike = np.repeat(np.arange(20) < 12, 10)
    _, low, high = metrics.share_of(alike, ids)
    one = metrics.share_of(np.arange(20) < 12)
    assert high - low == pytest.approx(one.high - one.low, rel=0.1)
    mixed = np.tile(np.arange(10) < 6, 20)
    assert metrics.share_of(mixed, ids).low > low


def test_a_summary_of_300_scores_a_side_takes_milliseconds():
    inside, outside = normal(300), normal(300, 1.0, seed=1)
    seconds = []
    for _ in range(10):
        start = time.process_time()
        metrics.summary(inside, outside, threshold=1.0)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.05  # 0.011 on an idle core
