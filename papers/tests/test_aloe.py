"""ALOE's tables on what is shipped, and one of their cells worked out by hand."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_reproduce import rows_of

from rood import zoo
from rood.models import checkpoint
from rood.models.backbones.densenet_bc import DenseNetBC
from rood.models.wrap import wrap
from rood.seeds import Noise
from rood.threat import Linf
from rood.training import job
from rood.training import recipe as recipes
from rood_papers.aloe import EXPERIMENTS
from rood_papers.aloe.bench import (
    WORLDS,
    LayersBench,
    SoftmaxBench,
    etas,
    stronger,
    train_for,
    worlds,
)
from rood_papers.aloe.tables import WORST, sides
from rood_papers.framework.bench import DIGITS
from rood_papers.framework.cells import Cell, ours
from rood_papers.framework.context import SIZES, Context, Network, NotRun
from rood_papers.framework.intervals import histogram
from rood_papers.framework.paper import figures

EXPERIMENT = {e.name.removeprefix("aloe/"): e for e in EXPERIMENTS}
table1, table3, adaptive = (EXPERIMENT[n].parts for n in ("table1", "table3", "adaptive"))
claims1, claims3, claims_adaptive = (EXPERIMENT[n].claims for n in ("table1", "table3", "adaptive"))
needs_data = pytest.mark.skipif("ROOD_DATA" not in os.environ, reason="ROOD_DATA is not set")


def both(context):
    """The parts of tables 1 and 3."""
    return [*table1(context), *table3(context)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Table 1 on what is shipped."""
    return rows_of("aloe/table1", tmp_path_factory.mktemp("table1"))


def test_table_1_runs_on_what_is_shipped(rows):
    digits = [r for r in rows if r.column.startswith("digits") and r.kind == "cell"]
    done = {(r.row, r.attack) for r in digits if r.ours is not None}
    assert {"clean", "paper", "official"} == {a for row, a in done if row == "ALOE+ODIN"}
    assert {row for row, _ in done} == {"MSP", "ODIN", "Mahalanobis", "ALOE", "ALOE+ODIN"}
    assert all(0 <= r.low <= r.ours <= r.high <= 1 for r in digits if r.ours is not None)
    missing = [r for r in rows if r.row == "AOE" and r.column == "digits"]
    assert {r.note.partition(";")[0] for r in missing} == {"not run: no network digits-aoe"}
    assert {r.ours for r in rows if r.column == "cifar10"} == {None}
    at = lambda row, attack: ours(digits, row=row, attack=attack, metric="auroc", column="digits")
    assert at("MSP", "clean") > at("MSP", "paper")
    assert at("ALOE", "paper") > at("MSP", "paper")


def test_equation_2_is_never_below_the_detection_error_of_either(rows):
    for row in ("MSP", "ODIN", "Mahalanobis", "ALOE"):
        facts = {"row": row, "column": "digits"}
        worst = ours(rows, metric=WORST, attack="paper", **facts)
        assert worst >= ours(rows, metric="detection_error", attack="paper", **facts)
        assert worst >= ours(rows, metric="detection_error", attack="clean", **facts)


def test_a_cell_is_what_plain_loops_give(bare, rows):
    """MSP on digits against `near`, both sides attacked: no detector, attack or metric of ours."""
    net, steps, eps = zoo.load("digits-ce"), 3, 0.1
    sides = []
    for name, n in (("digits/test", 32), ("digits/near", 10)):
        x = bare.images(name, limit=n).pixels()
        noise = Noise(x, bare.generator("aloe", "paper"))
        attacked = (x + eps * (2 * noise.uniform() - 1)).clamp(0, 1)
        for _ in range(steps):
            attacked.requires_grad_()
            log_p = net(attacked).logits.log_softmax(dim=1)
            uniform = log_p.mean(dim=1)
            entropy = -(log_p.exp() * log_p).sum(dim=1)
            loss = uniform if name == "digits/test" else -entropy.log()
            (gradient,) = torch.autograd.grad(loss.sum(), attacked)
            moved = attacked.detach() + 2.5 * eps / steps * gradient.sign()
            attacked = torch.minimum(torch.maximum(moved, x - eps), x + eps).clamp(0, 1)
        before, after = (net(v).logits.softmax(dim=1) for v in (x, attacked))
        value = lambda p, inside=name == "digits/test": (
            p.log().mean(1) if inside else (p * p.log()).sum(1)
        )
        kept = torch.where((value(after) > value(before))[:, None], after, before)
        sides.append(kept.double().max(dim=1).values.tolist())
    wins = [(out < inside) + 0.5 * (out == inside) for inside in sides[0] for out in sides[1]]
    facts = {"row": "MSP", "column": "digits / digits/near", "attack": "paper"}
    assert ours(rows, metric="auroc", **facts) == pytest.approx(np.mean(wins), abs=2e-3)


def test_the_paper_attack_stays_in_the_ball_and_is_made_once(bare):
    bench = SoftmaxBench(bare, DIGITS, "ce")
    found = bench.attacked(bench.inside, "paper")
    assert Linf(0.1).contains(found, bench.pixels(bench.inside)).all()
    assert bench.attacked(bench.inside, "paper") is found
    assert Linf(0.1).contains(bench.misled("paper"), bench.pixels(bench.inside)).all()


def test_numbers_do_not_depend_on_the_batch_around_an_image(bare, monkeypatch):
    whole = SoftmaxBench(bare, DIGITS, "aloe").attacked("digits/near", "paper")
    monkeypatch.setattr("rood_papers.aloe.bench.BATCH", 3)
    apart = SoftmaxBench(Context(SIZES["tiny"]), DIGITS, "aloe").attacked("digits/near", "paper")
    assert (whole - apart).abs().max() < 1e-6


def test_digits_stand_in_only_where_nothing_else_is(bare, monkeypatch):
    assert worlds(bare, "cifar10", "gtsrb") == [WORLDS["cifar10"], WORLDS["gtsrb"], DIGITS]
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    assert worlds(bare, "cifar10", "gtsrb") == [WORLDS["gtsrb"]]
    small = Context(SIZES["small"])
    assert worlds(small, "cifar10", "gtsrb") == [WORLDS["cifar10"], WORLDS["gtsrb"]]


def test_every_printed_number_of_tables_1_and_3_has_its_cell(bare, monkeypatch):
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    small = Context(SIZES["small"])
    cells = [c for part in both(small) for c in part.cells]
    paper = figures("aloe")
    for fact in (f for f in paper if f["place"] in ("table1", "table3")):
        attack = "paper" if fact["eps"] else "clean"
        column = fact["inside"] if fact["eps"] < 2 else f"{fact['inside']}, {fact['eps']}/255"
        same = {"row": fact["method"], "column": column, "metric": fact["metric"]}
        hits = [c for c in cells if c.attack == attack and same.items() <= vars(c).items()]
        assert [c.paper for c in hits] == [fact["value"]], fact
    names = [(p.cells[0].experiment, p.name) for p in both(small)]
    assert len(set(names)) == len(names)


def test_known_slips_of_the_paper_stand_beside_its_numbers(bare, monkeypatch):
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    cells = [c for part in table3(Context(SIZES["small"])) for c in part.cells]
    four = [c for c in cells if c.attack == "official" and c.column.endswith("4/255")]
    assert all("beyond 3/255" in c.note for c in four)
    assert all("does not see ODIN" in c.note for c in cells if c.row.endswith("ODIN"))


def test_a_note_points_only_to_rows_that_are_attacked_through_their_score(bare, monkeypatch):
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    small = Context(SIZES["small"])
    there = {(c.row, c.column) for p in adaptive(small) for c in p.cells}
    of = lambda world: {r for r, w in there if w == world}
    assert len(of("cifar10")) == 9
    assert of("gtsrb") == of("cifar10")
    assert of("cifar10") - of("cifar100") == {"ODIN", "OE+ODIN"}
    cells = [c for p in both(small) for c in p.cells]
    sees_less = [c for c in cells if "does not see" in c.note]
    for c in cells:
        expected = c in sees_less and c.experiment == "aloe/table1" and (c.row, c.column) in there
        assert ("aloe/adaptive" in c.note) == expected, c
    assert {c.row for c in sees_less if "aloe/adaptive" in c.note} == {
        *("ODIN", "Mahalanobis", "OE+ODIN", "ALOE+ODIN")
    }


def test_table_3_trains_the_networks_it_lacks_once(bare, monkeypatch, tmp_path):
    trained = []

    def train(recipe, path, command, *, device):
        trained.append(recipe)
        card = {"shape": [1, 28, 28], "classes": [str(i) for i in range(10)]}
        checkpoint.save(zoo.load("digits-ce"), path, card)
        yield

    monkeypatch.setattr(job, "run", train)
    train_for(bare, WORLDS["cifar10"], "aloe", 3)  # tiny: nobody waits for that
    assert not trained
    for _ in range(2):
        small = Context(SIZES["small"], out=tmp_path)
        train_for(small, WORLDS["cifar10"], "aloe", 3)
        assert small.network("cifar10/aloe-3").name == "cifar10-aloe-3"
    (recipe,) = trained
    assert recipe.objective.eps == 3 / 255
    assert recipe.objective.attack.steps == 4
    assert recipe.settings.epochs == 20
    assert recipe.architecture == {"depth": 16, "widen": 2}
    assert stronger(recipes.get("cifar10-aloe"), 2, "paper").architecture["depth"] == 40


def test_the_order_of_the_methods_is_asked_for_at_every_budget():
    at = {"ALOE": 0.7, "AOE": 0.6, "ADV": 0.5}
    facts = {"experiment": "aloe/table3", "metric": "auroc", "attack": "paper"}
    rows = [
        Cell(row=m, column=column, ours=v if "2/255" in column else 1 - v, **facts)
        for column in ("cifar10, 2/255", "cifar10, 4/255", "cifar10, 2/255 / svhn")
        for m, v in at.items()
    ]
    two, four = claims3(rows)
    assert "2/255" in two.row
    assert (two.ours, four.ours) == (1, 0)


def test_without_its_training_images_table_3_says_so(bare, tmp_path):
    small = Context(SIZES["small"], out=tmp_path)
    with pytest.raises(NotRun, match="no data"):
        train_for(small, WORLDS["gtsrb"], "adv", 2)
    parts = [p for p in table3(small) if p.name == "gtsrb, 2/255/adv-2/paper"]
    with pytest.raises(NotRun, match="no data"):
        list(parts[0].make())


def test_a_histogram_has_every_image_once():
    sides = {"in": torch.randn(200), "out": torch.randn(50) + 9}
    rows = list(histogram(sides, 40, 0.005))
    assert {n: round(sum(s for m, _, s in rows if m == n), 6) for n in sides} == {
        "in": 1,
        "out": 1,
    }


def test_bars_span_the_numbers_and_what_lies_beyond_is_in_the_outermost():
    groups = {"a": [0.0, 1.0, 2.0, 4.0], "b": [4.0, 4.0]}
    assert list(histogram(groups, 2)) == [
        ("a", 1.0, 0.5),
        ("a", 3.0, 0.5),
        ("b", 1.0, 0.0),
        ("b", 3.0, 1.0),
    ]
    far = {"a": [-1e9, *range(101), 1e9]}
    (_, first, low), *_, (_, last, high) = histogram(far, 10, 0.05)
    assert 0 < first < last < 100
    assert low == high > 0.1
    assert [s for _, _, s in histogram({"a": [3.0, 3.0]}, 1)] == [1.0]


@needs_data
def test_the_networks_of_odin_and_oecc_know_their_classes():
    context = Context(SIZES["tiny"], out=Path())
    for role in ("odin-densenet", "oecc-densenet"):
        net = context.network(f"cifar10/{role}")
        images = context.images("cifar10/test", limit=16)
        with torch.no_grad():
            right = net.model(images.pixels()).logits.argmax(1) == images.labels
        assert right.float().mean() > 0.7


SECOND = "cifar10 / every second image"


def judged_rows(half_width=0.01):
    """ODIN's gain is 0.03 on the images that ODIN is judged on, and 0.29 on others."""
    values = {
        ("ALOE+ODIN", "cifar10"): 0.90, ("ALOE", SECOND): 0.87,
        ("ALOE", "cifar10"): 0.61, ("AOE", "cifar10"): 0.58, ("ADV", "cifar10"): 0.55,
    }  # fmt: skip
    return [
        Cell(
            experiment="aloe/adaptive", row=row, column=column, metric="auroc",
            attack="standard", ours=v, low=v - half_width, high=v + half_width,
        )
        for (row, column), v in values.items()
    ]  # fmt: skip


@pytest.mark.parametrize(("half_width", "outcome"), [(0.01, 1.0), (0.06, 0.5)])
def test_claims_under_our_suite_are_decided_by_the_intervals_of_few_images(half_width, outcome):
    rows = judged_rows(half_width)
    assert [c.ours for c in claims_adaptive(rows)] == [outcome, outcome]
    elsewhere = [
        replace(r, column=r.column.replace("cifar10", "gtsrb"), low=0.0, high=1.0) for r in rows
    ]
    assert [c.ours for c in claims_adaptive([*rows, *elsewhere])] == [
        outcome,
        outcome,
        0.5,
        0.5,
    ]


def test_a_claim_rests_on_the_intervals_of_its_own_rows_alone():
    wide = lambda r: replace(r, low=0.0, high=1.0) if r.row == "ALOE+ODIN" else r
    odin, order = claims_adaptive(list(map(wide, judged_rows())))
    assert (odin.ours, order.ours) == (0.5, 1.0)


def test_what_odin_adds_is_not_asked_of_other_images():
    odin, order = claims_adaptive([r for r in judged_rows() if r.column != SECOND])
    assert (odin.ours, order.ours) == (None, 1.0)


@pytest.mark.parametrize(("half_width", "outcome"), [(0.01, 1.0), (0.06, 0.5)])
def test_claims_of_tables_1_and_3_are_decided_by_intervals_too(half_width, outcome):
    values = {"ALOE+ODIN": 0.93, "ALOE": 0.90, "AOE": 0.87, "ADV": 0.84, "OE": 0.87, "MSP": 0.47}
    values |= {"ODIN": 0.1, "Mahalanobis": 0.1}
    facts = {"column": "cifar10", "metric": "auroc", "attack": "paper"}
    rows = [
        Cell(experiment="", row=m, ours=v, low=v - half_width, high=v + half_width, **facts)
        for m, v in values.items()
    ]
    assert [c.ours for c in claims1(rows)] == [outcome] * 4
    assert [c.ours for c in claims3(rows)] == [outcome]
    wide = [replace(r, low=0.0, high=1.0) if r.row in ("OE", "ALOE+ODIN") else r for r in rows]
    assert [c.ours for c in claims1(wide)] == [outcome, outcome, 0.5, 0.5]


@needs_data
@pytest.mark.parametrize("name", WORLDS)
def test_what_odin_is_judged_on_is_every_second_image_of_the_others(name):
    small = Context(SIZES["small"])
    small._networks[f"{name}/aloe"] = Network(zoo.load("digits-ce"), "any", (3, 32, 32))
    bench = SoftmaxBench(small, WORLDS[name], "aloe")
    (inside, outside), (few_in, few_out) = (sides(bench, fewer=f) for f in (False, True))
    assert (len(inside), [len(x) for x in outside.values()]) == (200, [50] * 4)
    for n, all_, few in (
        (bench.inside, inside, few_in),
        *((n, outside[n], few_out[n]) for n in outside),
    ):
        assert torch.equal(few, all_[::2])
        assert torch.equal(few, bench.pixels(n, len(all_) // 2))  # as in earlier runs


def test_a_detector_of_one_pass_is_also_judged_on_every_second_image(bare):
    bare.size = replace(bare.size, standard=12)
    (part,) = [p for p in adaptive(bare) if p.name == "digits/MSP"]
    found = list(part.make())
    (half,) = [r for r in found if r.column == "digits / every second image"]
    assert (half.metric, half.attack, half.n_in, half.n_out) == ("auroc", "standard", 6, 6)
    assert 0 <= half.low <= half.ours <= half.high <= 1
    (part,) = [p for p in adaptive(bare) if p.name == "digits/ALOE+ODIN"]
    found = list(part.make())
    assert {(r.n_in, r.n_out) for r in found if r.column == "digits"} == {(6, 6)}
    assert not [r for r in found if "every second" in r.column]


def test_mahalanobis_of_a_densenet_takes_the_layers_of_its_paper(bare):
    classes = zoo.load("digits-ce").classes
    net = DenseNetBC(classes=classes, channels=1, depth=10, growth=4)
    bare._networks["digits/odin-densenet"] = Network(wrap(net, head="head"), "any", (1, 28, 28))
    found = LayersBench(bare, DIGITS, "odin-densenet").mahalanobis()
    assert found.layers == ("stem", "body.transition1", "body.transition2", "relu")
    assert len(found.weights_) == 4
    assert LayersBench(bare, DIGITS, "ce").mahalanobis().layers is None


def test_the_page_says_how_its_networks_and_detectors_differ_from_the_papers(bare):
    first, third = (EXPERIMENT[n].why for n in ("table1", "table3"))
    for method in ("adv", "aoe", "aloe"):
        recipe = stronger(recipes.get(f"gtsrb-{method}"), 2, "small")
        assert recipe.architecture == {"depth": 16, "widen": 1}
        settings = recipe.settings
        assert (settings.epochs, settings.outlier_batch, settings.ema) == (8, 256, 0)
        assert recipes.get(f"cifar100-{method}").settings.epochs == 24
    assert "for GTSRB for 8 epochs each as WRN-16-1, with 256 outliers per step and no av" in third
    assert "not to be compared with its ADV, AOE and ALOE of WRN-16-2" in third
    assert recipes.get("cifar100-ce").settings.epochs == 30
    assert "the undefended one had 30 epochs, the others 24" in first
    bare.size = SIZES["small"]
    assert ", ".join(f"{eta:g}" for eta in etas(bare)) in first
    assert f"{bare.size.fit:,} images" in first
    stages = zoo.load("gtsrb-ce").stages(torch.rand(2, 3, 32, 32))
    assert stages == ("blocks.1", "blocks.3", "norm")
    assert "of each of the three stages of a WRN, the third before its ReLU, and no stem" in first


@pytest.mark.parametrize(
    ("name", "rows", "numbers"),
    [("table2", 60, 8), ("table4", 60, 6), ("figure2", 166, 160), ("adaptive", 39, 15)],
)
def test_the_other_experiments_run_on_what_is_shipped(tmp_path, name, rows, numbers):
    found = [r.ours for r in rows_of(f"aloe/{name}", tmp_path) if r.kind in ("cell", "point")]
    known = [v for v in found if v is not None]
    assert (len(found), len(known)) == (rows, numbers)
    assert np.isfinite(known).all()
