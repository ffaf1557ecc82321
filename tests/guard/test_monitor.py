"""Monitors: exact p-values, the promised rate of false alarms, and alarms on what is not ID."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from toy_guard import batches, guarded

from rood.detectors import Energy
from rood.errors import InputError
from rood.guard import Guard, Monitor
from rood.guard.calibration import calibrate
from rood.guard.monitor import BETS, bet
from rood.testing.world import blobs, stripes, toy_world

ARL = 250


@pytest.fixture(scope="module")
def guard():
    return guarded(Energy(toy_world().model))


def watched(guard, rng, n=60, **options):
    """A monitor whose calibration scores are drawn anew."""
    return Monitor(replace(guard, calibration=calibrate(rng.normal(size=n))), **options)


def test_every_bet_is_fair():
    p = (np.arange(1000) + 0.5) / 1000
    for one in BETS:
        assert np.mean([bet(v, *one) for v in p]) == pytest.approx(1, abs=1e-3)


def test_p_values_of_a_stream_are_uniform_and_independent_even_with_ties(guard):
    rng = np.random.default_rng(0)
    p = []
    for seed in range(150):
        monitor = watched(guard, rng, n=30, arl=1e12, seed=seed)
        p.append([monitor.add(round(s, 1)).p for s in rng.normal(size=20).tolist()])
    p = np.array(p)
    assert kstest(p.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(p[:, :-1].ravel(), p[:, 1:].ravel())[0, 1]) < 0.06


def test_1000_streams_of_id_images_raise_no_more_false_alarms_than_stated(guard):
    rng, n, alarms = np.random.default_rng(1), 25, 0
    for seed in range(1000):
        monitor = watched(guard, rng, arl=ARL, seed=seed)
        alarms += any(monitor.add(s).alarm for s in rng.normal(size=n).tolist())
    assert alarms / 1000 <= n / ARL  # 0.1
    assert alarms > 0  # else nothing was tested


@pytest.mark.parametrize(("share", "soon"), [(1.0, 15), (0.2, 100), (0.05, 1000)])
def test_ood_images_raise_an_alarm_the_sooner_the_more_there_are(guard, share, soon):
    rng = np.random.default_rng(2)
    delays = []
    for seed in range(10):
        monitor = watched(guard, rng, n=200, arl=1000, seed=seed)
        while not monitor.alarms and monitor.seen < 2000:
            monitor.add(rng.normal() + 5 * (rng.random() < share))
        delays.append(monitor.seen)
    assert np.median(delays) <= soon


def test_images_go_through_the_guard_and_an_alarm_starts_anew(guard):
    monitor = Monitor(guard, arl=100)
    same = monitor.see(blobs(30, seed=5)[0])
    assert not monitor.alarms
    assert [r.number for r in same] == list(range(1, 31))
    readings = monitor.see(stripes(30, seed=6))
    assert monitor.alarms
    assert monitor.alarms[0] == next(r.number for r in readings if r.alarm)
    decision = guard(stripes(30, seed=6))
    assert [r.accept for r in readings] == decision.accept.tolist()
    assert readings[-1].evidence < 1e6


def test_confirmed_images_join_the_calibration(guard):
    monitor = Monitor(guard, arl=100)
    monitor.see(stripes(30, seed=6))
    before = len(monitor.alarms)
    assert before > 0
    monitor.confirm(stripes(200, seed=7))
    monitor.see(stripes(30, seed=8))
    assert len(monitor.alarms) == before
    again = monitor.recalibrated()
    assert again.calibration.n == guard.calibration.n + 200
    accepted = [g(stripes(30, seed=9)).accept.double().mean() for g in (guard, again)]
    assert accepted[1] > accepted[0] + 0.5


def test_nan_counts_as_the_most_ood_score(guard, monkeypatch):
    monitor = Monitor(guard)
    scores = torch.tensor([torch.nan, guard.threshold, torch.nan, -1e3])
    monkeypatch.setattr(Guard, "__call__", lambda *_: SimpleNamespace(score=scores))
    monitor.confirm(blobs(4, seed=1)[0])
    assert monitor.confirmed == [np.inf, guard.threshold, np.inf, -1e3]
    monitor = Monitor(guard)
    reading = monitor.add(float("nan"))
    assert not reading.accept
    assert reading.p <= 1 / (guard.calibration.n + 1)


def test_a_saved_guard_can_be_watched_and_an_old_one_says_why_not(guard, tmp_path):
    guard.save(tmp_path / "guard")
    again = Guard.load(tmp_path / "guard", model=guard.model)
    assert again.calibration.scores == guard.calibration.scores
    assert len(again.calibration.scores) == sum(len(x) for x, _ in batches())
    x = torch.cat([blobs(5, seed=1)[0], stripes(5, seed=2)])
    assert Monitor(again).see(x) == Monitor(guard).see(x)
    old = replace(guard, calibration=replace(guard.calibration, scores=()))
    with pytest.raises(InputError, match="got one of an earlier version of rood, or with infinite"):
        Monitor(old)
    with pytest.raises(InputError, match="expected an average run length above 1 image, got 0"):
        Monitor(guard, arl=0)
