"""PRO's tables and figures on what is shipped, and `pro/imagenet` on a network of one's own."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_reproduce import rows_of

import rood_papers as reproduce
from rood import tuning
from rood.detectors import MSP, PRO, TemperatureScaling
from rood.metrics import Interval, auroc
from rood.models import backbones, checkpoint
from rood.models.wrap import wrap
from rood_papers.framework import intervals
from rood_papers.framework.bench import DIGITS
from rood_papers.framework.cells import Cell, ours
from rood_papers.framework.claims import UNDECIDED
from rood_papers.framework.context import SIZES, Context
from rood_papers.framework.intervals import gain
from rood_papers.framework.paper import figures
from rood_papers.framework.run import run
from rood_papers.pro import EXPERIMENTS, tables
from rood_papers.pro import figures as pro_figures
from rood_papers.pro.bench import (
    CIFAR10,
    PLAIN,
    SHARED,
    UNIT,
    TunedBench,
    as_printed,
    chosen,
    climbs,
    rectified,
)
from rood_papers.pro.figures import LEAD, TOP, _second, mean_of
from rood_papers.pro.tables import GAIN

EXPERIMENT = {e.name.removeprefix("pro/"): e for e in EXPERIMENTS}
table1, table2, sweep = (EXPERIMENT[n].parts for n in ("table1", "table2", "sweep"))
claims1, claims2, claims_sweep, claims_adaptive = (
    EXPERIMENT[n].claims for n in ("table1", "table2", "sweep", "adaptive")
)
claims3, claims4, claims6, claims7 = (EXPERIMENT[f"figure{n}"].claims for n in (3, 4, 6, 7))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Table 1 on what is shipped."""
    return rows_of("pro/table1", tmp_path_factory.mktemp("table1"))


def test_table_1_runs_on_what_is_shipped(rows):
    cells = [r for r in rows if r.kind == "cell"]
    assert {r.row for r in cells} >= {"MSP", "ODIN", "KNN", *PLAIN}
    assert all((-1 if r.metric == GAIN else 0) <= r.low <= r.ours <= r.high <= 1 for r in cells)
    assert {r.network for r in cells} == {"digits-ce", "digits-aloe"}
    assert sum(r.kind == "claim" and r.ours is not None for r in rows) == 12


def test_a_group_is_the_mean_of_its_sets_and_a_cell_what_plain_loops_give(bare, rows):
    at = lambda column, row="PRO-MSP": ours(
        rows, row=row, column=f"default / {column}", metric="auroc"
    )
    far = [at(n) for n in ("digits/patches", "digits/noise")]
    assert at("far") == pytest.approx(np.mean(far))
    assert at("mean") == pytest.approx(np.mean([at("digits/near"), *far]))
    bench = TunedBench(bare, DIGITS, "ce")
    chosen = bench.detectors()["PRO-MSP"]
    sides = []
    for name in (bench.inside, "digits/near"):
        x = bench.pixels(name)
        lowest = bench.model(x).logits.softmax(1).amax(1)
        for _ in range(chosen.steps):
            x = x.detach().requires_grad_()
            p = bench.model(x).logits.softmax(1).amax(1)
            (gradient,) = torch.autograd.grad(p.log().sum(), x)
            x = x - chosen.eps * gradient.sign()
            lowest = torch.minimum(lowest, bench.model(x).logits.softmax(1).amax(1))
        sides.append(lowest.double().tolist())
    wins = [(out < inside) + 0.5 * (out == inside) for inside in sides[0] for out in sides[1]]
    assert at("digits/near") == pytest.approx(np.mean(wins), abs=0.01)


@pytest.mark.parametrize("name", ["figure1", "figure3", "figure4", "figure6", "figure7", "sweep"])
def test_figures_run_on_what_is_shipped(bare, name):
    rows = list(run(reproduce.chosen([f"pro/{name}"]), bare))
    numbers = [r.ours for r in rows if r.kind in ("cell", "point")]
    assert numbers
    assert None not in numbers
    assert np.isfinite(numbers).all()


def test_one_climb_serves_every_count_of_steps(bare):
    bench = TunedBench(bare, DIGITS, "ce")
    x = bench.pixels("digits/near")
    whole = climbs(PRO(MSP(bench.model), eps=1e-3, steps=5), x)
    with torch.no_grad():
        for k in (1, 3):
            apart = PRO(MSP(bench.model), eps=1e-3, steps=k).score(x)
            assert torch.allclose(whole[: k + 1].amax(dim=0), apart)


def test_the_near_sets_together_are_as_many_as_asked_for_and_so_are_the_far_ones(tmp_path):
    bench = TunedBench(Context(replace(SIZES["small"], images=40), out=tmp_path), DIGITS, "ce")
    count = lambda names: sum(len(bench.pixels(n)) for n in names)
    assert [count(n) for n in ((bench.inside,), DIGITS.near, DIGITS.far)] == [40, 40, 40]


def test_steps_are_chosen_on_images_that_no_row_is_judged_on(bare):
    bench = TunedBench(bare, DIGITS, "ce")
    inside, outside = bench.validation()
    judged = bare.images(bench.inside, limit=10_000)
    assert not np.isin(inside.hashes(), judged.hashes()).any()
    best = rectified(bench, "PRO-GEN", inside.pixels(), outside.pixels())
    assert best.steps in (1, 2)
    assert best.base.gamma == 0.01


def single_points(monkeypatch, **other):
    """Grids of one point each, but for those given."""
    grids = {n: {k: v[:1] for k, v in grid.items()} for n, grid in tuning.GRIDS.items()}
    monkeypatch.setattr(tuning, "GRIDS", grids | {f"pro/{k}": v for k, v in other.items()})


def test_detectors_learn_from_all_training_images_and_temperature_from_validation_ones(
    monkeypatch, tmp_path
):
    single_points(monkeypatch)
    context = Context(replace(SIZES["small"], images=40, fit=20), out=tmp_path)
    bench = TunedBench(context, DIGITS, "ce")
    found = bench.detectors()
    everything = context.images("digits/fit", limit=10_000)
    assert len(found["KNN"].bank_) == len(everything) > 20
    apart = TemperatureScaling(bench.model).fit(bench.validation()[0].batches(64))
    assert found["TempScaling"].temperature_.item() == pytest.approx(apart.temperature_.item())


def test_all_of_the_papers_grid_is_tried_and_its_steps_are_pixels_on_robust_networks(monkeypatch):
    grid = {"eps": (1e-4, 2e-4), "steps": (1, 2), "temperature": (0.01, 1000.0)}
    single_points(monkeypatch, pro_msp_t=grid)
    best = {}
    for role, unit in (("ce", 1), ("aloe", 4)):
        bench = TunedBench(Context(SIZES["small"]), DIGITS, role)
        x_in, x_out = (bench.pixels(n)[:100] for n in (bench.inside, "digits/near"))
        values = {}
        for t in grid["temperature"]:
            for eps in grid["eps"]:
                for steps in grid["steps"]:
                    pro = PRO(MSP(bench.model, temperature=t), eps=unit * eps, steps=steps)
                    with torch.no_grad():
                        value = auroc(inside=pro.score(x_in), outside=pro.score(x_out))
                    values[f"eps={unit * eps:g}, K={steps}, temperature={t:g}"] = value
        found = rectified(bench, "PRO-MSP-T", x_in, x_out)
        said = re.sub(r" \(the \w+ tried\)", "", chosen("PRO-MSP-T", found, bench.unit))
        best[role] = values[said], max(values.values())
    assert all(value == pytest.approx(largest) for value, largest in best.values())


@pytest.mark.parametrize(("unit", "most"), [(UNIT, 0.00125), (1.0, 0.005)])
def test_a_step_at_an_end_of_the_grid_is_said_to_be_one(unit, most):
    msp = MSP(TunedBench(Context(SIZES["small"]), DIGITS, "ce").model)
    notes = [
        chosen("PRO-MSP", PRO(msp, eps=e, steps=1), unit) for e in (most / 500, most, most / 5)
    ]
    assert ["least" in n for n in notes] == [True, False, False]
    assert ["largest" in n for n in notes] == [False, True, False]


def test_a_verdict_says_where_validation_left_pro_nothing_to_do():
    note = "eps=1e-05 (the least tried), K=1"
    cells = gained("pro/table1", robust=Interval(0.0, -0.001, 0.001))
    told = {c.row: c.column for c in claims1([replace(r, note=note) for r in cells])}
    shown = told["PRO-GEN is above GEN, PRO's base on near OOD, robust network"]
    assert shown.endswith("; validation chose the least step")
    assert not told["PRO-GEN is above GEN, PRO's base on near OOD, default network"].endswith(
        "step"
    )


def test_table_2_claims_what_the_paper_gains():
    cell = Cell(experiment="pro/table2", row="PRO-MSP", column="default / near", metric=GAIN)
    rows = [
        replace(cell, paper=0.005).found(Interval(0.01, 0.006, 0.014)),
        replace(cell, row="PRO-ENT", paper=-0.01).found(Interval(0.01, 0.006, 0.014)),
    ]
    assert [(c.row, c.ours) for c in claims2(rows)] == [
        ("PRO-MSP is above MSP on near OOD, default network", 1.0)
    ]


def test_a_lower_fpr_is_decided_by_its_intervals():
    cell = Cell(experiment="pro/table1", row="MSP", column="default / near", metric="fpr95_out")
    rows = [
        cell.found(Interval(0.5, 0.45, 0.55)),
        replace(cell, row="PRO-MSP").found(Interval(0.4, 0.36, 0.44)),
    ]
    told = {c.row: c.ours for c in claims1(rows)}
    assert told["PRO-MSP has a lower FPR95 than MSP on near OOD, default network"] == 1.0


def test_the_note_of_a_tuned_row_has_every_option_that_was_chosen(rows):
    notes = {r.row: r.note for r in rows if r.column == "default / near" and r.metric == "auroc"}
    assert notes["PRO-GEN"] == "gamma=0.01, M=6, eps=0.0002, K=" + notes["PRO-GEN"][-1]
    assert notes["GEN, PRO's base"] == "gamma=0.01, M=6"
    assert notes["ODIN"] == "temperature=1000, eta=0.0014"
    assert notes["KNN"].startswith("k=")
    assert notes["ASH"].startswith("percentile=")
    assert notes["MDS"] == notes["MSP"] == ""


def test_tiny_imagenet_is_judged_and_tuned_on_without_the_classes_of_the_network(tmp_path):
    net = backbones.create("small_cnn", classes=2, width=4, features=8)
    path = tmp_path / "own.safetensors"
    card = {"shape": (3, 32, 32), "classes": ["frog", "ship"]}
    checkpoint.save(wrap(net, mean=(0.5,) * 3, std=(0.2,) * 3), path, card)
    packs = {}
    for name in ("cifar10/fit", "cifar10/validation", "cifar100/test", *SHARED):
        file = tmp_path / f"{name.replace('/', '-')}.npz"
        # the colour is the class, the third of them a frog
        images = np.repeat(np.arange(60) // 20 * 100, 32 * 32 * 3).reshape(-1, 32, 32, 3)
        classes = ["c", "d", "n01641577"] if name in SHARED else ["a", "b", "frog"]
        np.savez(
            file,
            images=images.astype(np.uint8),
            labels=np.arange(60) // 20,
            classes=classes,
        )
        packs[name] = f"npz:{file}"
    size = replace(SIZES["small"], images=20)
    bench = TunedBench(Context(size, models={"cifar10/ce": str(path)}, data=packs), CIFAR10, "ce")
    levels = lambda x: (x[:, 0, 0, 0] * 255).round().int().bincount().nonzero().flatten().tolist()
    assert levels(bench.pixels("tiny-imagenet")) == [0, 100]
    assert len(bench.pixels("tiny-imagenet")) == len(bench.pixels("cifar100/test")) == 10
    assert levels(bench.pixels("cifar100/test")) == [0, 100, 200]
    inside, outside = bench.validation()
    assert (len(inside), len(outside)) == (60, 40)
    assert levels(outside.pixels()) == [0, 100]


def correlated(rng, n_in, n_out):
    """Two scores of the same images, rounded so that some tie."""
    base = rng.normal(size=n_in), rng.normal(size=n_out) + 0.8
    moved = [s + 0.4 * rng.normal(size=len(s)) + 0.1 * i for i, s in enumerate(base)]
    return [np.round(s, 1) for s in (*moved, *base)]


def test_a_gain_is_what_plain_loops_give():
    scores = correlated(np.random.default_rng(0), 30, 40)
    won = [
        np.array([[(o > i) + 0.5 * (o == i) for o in outside] for i in inside])
        for inside, outside in (scores[:2], scores[2:])
    ]
    by_in, by_out = (won[0].mean(axis) - won[1].mean(axis) for axis in (1, 0))
    half = 1.959964 * (by_in.var(ddof=1) / 30 + by_out.var(ddof=1) / 40) ** 0.5
    value = won[0].mean() - won[1].mean()
    assert gain(*scores) == pytest.approx((value, value - half, value + half))


def test_the_interval_of_a_gain_is_as_wide_as_the_bootstraps():
    rng = np.random.default_rng(1)
    scores = correlated(rng, 200, 150)
    drawn = []
    for _ in range(1000):
        a, b = rng.integers(0, 200, 200), rng.integers(0, 150, 150)
        pro, base = (
            auroc(inside=inside[a], outside=outside[b])
            for inside, outside in (scores[:2], scores[2:])
        )
        drawn.append(pro - base)
    low, high = np.quantile(drawn, [0.025, 0.975])
    found = gain(*scores)
    assert found.high - found.low == pytest.approx(high - low, rel=0.15)


def test_scores_that_rank_alike_gain_nothing_and_one_image_decides_nothing():
    s_in, s_out = np.arange(5.0), np.arange(3.0, 9.0)
    assert gain(s_in, s_out, 2 * s_in, 2 * s_out) == (0, 0, 0)
    assert gain([0.0], [1.0], [1.0], [0.0]) == (1, -1, 1)


def test_the_gain_of_a_group_is_the_difference_of_its_cells(rows):
    shown = {r.row for r in rows}
    for row, base in {**PLAIN, "ODIN": "MSP"}.items():
        if base not in shown:
            continue  # of GEN alone the table has another base
        for column in ("default / near", "default / mean", "robust / near", "robust / mean"):
            at = lambda row, metric, c=column: ours(rows, row=row, column=c, metric=metric)
            assert at(row, GAIN) == pytest.approx(at(row, "auroc") - at(base, "auroc"))
    gains = [r for r in rows if r.metric == GAIN]
    assert {r.row for r in gains} == {*PLAIN, "ODIN"}
    assert all("less MSP, of" in r.note for r in gains if r.row == "ODIN")


def test_gains_are_counted_in_float64(monkeypatch):
    rank = intervals.rankdata
    monkeypatch.setattr(intervals, "rankdata", lambda s: rank(s).astype(np.float32))
    draws = np.random.default_rng(3)
    s_in, s_out, b_in, b_out = (draws.normal(size=301) for _ in range(4))
    less = auroc(inside=s_in, outside=s_out) - auroc(inside=b_in, outside=b_out)
    assert gain(s_in, s_out, b_in, b_out).value == pytest.approx(less, abs=1e-12, rel=0)


def test_the_papers_gain_is_that_of_its_printed_numbers(monkeypatch):
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    cells = [c for part in table1(Context(SIZES["small"])) for c in part.cells]
    found = {(c.row, c.column): c.paper for c in cells if c.metric == GAIN}
    assert found["PRO-GEN", "robust / mean"] == pytest.approx(0.95 - 0.9214)
    assert found["ODIN", "default / mean"] == pytest.approx(-0.0357)  # over MSP
    assert found["PRO-GEN", "robust / near"] is None
    assert found["PRO-MSP-T", "robust / mean"] is None  # its base has no row


def gained(experiment, **nets):
    """Rows in which PRO-GEN gains so much on each network."""
    return [
        Cell(experiment=experiment, row="PRO-GEN", column=f"{n} / {g}", metric=GAIN).found(i)
        for n, i in nets.items()
        for g in ("near", "mean")
    ]


@pytest.mark.parametrize(
    ("robust", "default", "outcomes"),  # above its base on the robust network; and by more
    [
        (Interval(0.02, 0.01, 0.03), Interval(0.001, -0.001, 0.003), (1, 1)),
        (Interval(0.02, 0.01, 0.03), Interval(0.015, 0.005, 0.025), (1, UNDECIDED)),
        (Interval(0.02, 0.01, 0.03), Interval(0.06, 0.05, 0.07), (1, 0)),
        (Interval(0.001, -0.001, 0.003), Interval(0.0, -0.001, 0.001), (0, 0)),  # as good as none
        (Interval(0.005, -0.001, 0.011), Interval(0.0, -0.001, 0.001), (UNDECIDED, UNDECIDED)),
        (Interval(-0.001, -0.0015, -0.0005), Interval(-0.02, -0.03, -0.01), (0, 0)),
        (None, Interval(0.02, 0.01, 0.03), (None, None)),  # rows of earlier versions
    ],
)
def test_gains_are_decided_by_their_intervals(robust, default, outcomes):
    nets = {"robust": robust, "default": default}
    given = {n: i for n, i in nets.items() if i is not None}
    told = {c.row: c.ours for c in claims1(gained("pro/table1", **given))}
    more = "PRO-GEN gains on the {}robust{}, and more than on the default one, near OOD"
    above = told["PRO-GEN is above GEN, PRO's base on near OOD, robust network"]
    assert (above, told[more.format("", " network")]) == outcomes
    old = Cell(experiment="pro/figure4", row="PRO-GEN", column="robust / near", metric="auroc")
    told4 = {c.row: c.ours for c in claims4([*gained("pro/figure4", **given), old.found(0.9)])}
    assert told4[more.format("network ", "")] == outcomes[1]


def test_landscapes_are_of_the_scores_as_the_papers_have_them(bare):
    bench = TunedBench(bare, DIGITS, "ce")
    x = bench.pixels("digits/near")
    with torch.no_grad():
        p = bench.model(x).logits.double().softmax(1)
        found = {name: score(x).double() for name, score in as_printed(bench.model).items()}
    assert torch.allclose(found["MSP"], p.amax(1), atol=1e-6)
    assert torch.allclose(found["Entropy"], -(p * p.log()).sum(1), atol=1e-5)
    assert torch.allclose(found["GEN"], (p * (1 - p)).pow(0.1).sum(1), atol=1e-5)


@pytest.mark.parametrize(("half", "outcome"), [(0.002, 1), (0.03, UNDECIDED)])
def test_which_score_is_rougher_is_decided_by_the_intervals(half, outcome):
    rows = [
        Cell("pro/figure6", f"{n}, default", "inside", "roughness").found(
            Interval(v, v - half, v + half)
        )
        for n, v in (("EBO", 0.05), ("MSP", 0.02))
    ]
    assert [c.ours for c in claims6(rows)] == [outcome, None, None, None]


@pytest.mark.parametrize(
    ("few", "many", "half", "outcome"),
    [(0.02, 0.06, 0.01, 1.0), (0.02, 0.06, 0.05, 0.5), (0.002, 0.006, 0.001, 1.0)],
)
def test_shifts_are_ordered_by_their_intervals(few, many, half, outcome):
    def rows(experiment, at):
        return [
            Cell(experiment=experiment, row=row, column=column, metric="shift").found(
                Interval(v, v - half, v + half)
            )
            for (row, column), v in at.items()
        ]

    nets = {("cifar10, default", "inside"): few, ("cifar100, default", "inside"): many}
    assert [c.ours for c in claims7(rows("pro/figure7", nets))] == [outcome]
    near, inside = ("cifar10, ADV", "near"), ("cifar10, ADV", "inside")
    (further,) = claims3(rows("pro/figure3", {inside: few, near: many}))
    assert further.ours == outcome
    assert further.row.startswith("ours: ")
    (back,) = claims3(rows("pro/figure3", {inside: many, near: few}))
    assert back.ours == (0.0 if outcome == 1 else 0.5)


@pytest.mark.parametrize(
    ("value", "half", "outcome"),
    [
        (0.01, 0.005, 1.0),
        (0.01, 0.02, 0.5),
        (-0.01, 0.005, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 0.004, 0.0),
    ],
)
def test_leads_are_decided_by_their_paired_intervals(value, half, outcome):
    at = Interval(value, value - half, value + half)
    lead = Cell(experiment="pro/sweep", row="PRO-MSP, ADV", column="both", metric=LEAD).found(at)
    assert [c.ours for c in claims_sweep([lead])] == [outcome, None]
    through = Cell(
        experiment="pro/adaptive", row="PRO-ENT", column="ADV", metric=GAIN, attack="standard"
    ).found(at)
    unattacked = replace(through, attack="clean", ours=0.5, low=0.4, high=0.6)
    assert [c.ours for c in claims_adaptive([unattacked, through])] == [outcome]
    left = [
        replace(through, row=row, metric="auroc").found(Interval(0.01, 0.0, 0.02))
        for row in ("PRO-ENT", "Entropy")
    ]
    (gone,) = claims_adaptive([through, *left])
    assert gone.ours is None
    assert "nothing is left" in gone.column
    (some,) = claims_adaptive([through, left[0], replace(left[1], ours=0.4)])
    assert some.ours == outcome
    odin = Cell(experiment="pro/table1", row="ODIN", column="default / near", metric=GAIN).found(at)
    told = {c.row: c.ours for c in claims1([odin])}
    hurts = told["ODIN hurts on near OOD, default network: below MSP"]
    assert hurts == (0.0 if value >= 0 and half < 0.02 else 1 - outcome)
    assert told["ODIN hurts on near OOD, robust network: below MSP"] is None


@pytest.mark.parametrize(("best", "outcome"), [(0.88, 1.0), (0.865, 0.5), (0.84, 0.0)])
def test_the_best_step_is_held_against_none(best, outcome):
    row = Cell(experiment="pro/sweep", row="PRO-MSP, ADV", column=TOP["best"], metric="auroc")
    points = [
        replace(row, kind="point", column="K").found(v, x=x) for x, v in ((1.0, 0.7), (0.0, 0.86))
    ]
    _, gains = claims_sweep([*points, row.found(best)])
    assert gains.ours == outcome


def test_the_lead_is_that_of_the_largest_over_the_largest(bare, monkeypatch):
    draws = torch.Generator().manual_seed(9)
    random = lambda pro, x: torch.rand(pro.steps + 1, len(x), generator=draws)
    monkeypatch.setattr(pro_figures, "climbs", random)
    rows = [r for part in sweep(bare) for r in part.make()]
    tops = {
        keep: max(r.ours for r in rows if r.kind == "point" and r.group.endswith(keep))
        for keep in TOP
    }
    assert tops["best"] != tops["last"]
    for keep, column in TOP.items():
        assert ours(rows, column=column, metric="auroc") == pytest.approx(tops[keep])
    assert ours(rows, metric=LEAD) == pytest.approx(tops["best"] - tops["last"])


@pytest.mark.parametrize(
    ("name", "role", "row", "eps"),
    [("figure7", "ce", "default", 2.5e-4), ("figure3", "aloe", "robust", 1e-3)],
)
def test_shifts_take_the_papers_step_in_the_units_of_its_networks(bare, name, role, row, eps):
    cells = [r for r in run(reproduce.chosen([f"pro/{name}"]), bare) if r.kind == "cell"]
    bench = TunedBench(bare, DIGITS, role)
    x = bench.pixels(bench.inside).requires_grad_()
    p = bench.model(x).logits.softmax(1).amax(1)
    (gradient,) = torch.autograd.grad(p.log().sum(), x)
    with torch.no_grad():
        moved = bench.model(x - eps * gradient.sign()).logits.softmax(1).amax(1)
    shift = (p - moved).abs().mean().item()
    assert ours(cells, row=f"digits, {row}", column="inside") == pytest.approx(shift, rel=1e-2)
    assert all(f"{eps:g} in pixels" in r.note for r in cells)
    assert all(("normalised" in r.note) == (role == "ce") for r in cells)


def test_what_is_smaller_than_in_the_paper_is_said():
    why = {e.name: e.why for e in reproduce.chosen(["pro"])}
    assert "half of CIFAR-100 (62.8 % and 59.0 % accuracy)" in why["pro/table2"]
    assert "100 images per side" in why["pro/adaptive"]
    assert "500 images per side" in why["pro/sweep"]
    for name in ("figure3", "figure6", "figure7", "sweep", "adaptive"):
        assert "CIFAR-100 alone" in why[f"pro/{name}"]
    note = next(
        c.note for part in table1(Context(SIZES["small"])) for c in part.cells
        if c.row == "ODIN" and c.column.startswith("robust")
    )  # fmt: skip
    assert "divided by std once where no division belongs" in note


def test_every_printed_number_of_both_tables_has_its_cell(bare, monkeypatch):
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    small = Context(SIZES["small"])
    cells = [c for t in (table1, table2) for part in t(small) for c in part.cells]
    values = {(c.experiment, c.row, c.column, c.metric): c.paper for c in cells}
    sets = {"cifar100": "cifar100/test", "places365": "scenes"}
    for fact in figures("pro"):
        column = f"{fact['model']} / {sets.get(fact['outside'], fact['outside'])}"
        key = (f"pro/{fact['place']}", fact["method"], column, fact["metric"])
        assert values[key] == fact["value"], key
    assert CIFAR10.roles["robust"] == "augmix"


def test_roughness_is_that_of_a_parabola():
    a = torch.arange(5.0)
    bowl = (a[:, None] ** 2 + 3 * a[None, :] ** 2)[None]
    assert _second(bowl).tolist() == [4.0]  # (2 + 6) / 2
    assert mean_of(torch.tensor([1.0, 3.0])).value == 2


def test_a_network_may_be_a_function_of_ones_own(bare, tmp_path, monkeypatch):
    (tmp_path / "ownnet_for_reproduce.py").write_text(
        "from rood.models import backbones\n"
        "def make():\n"
        "    return backbones.create('small_cnn', classes=4, width=4, features=8)\n"
    )
    monkeypatch.chdir(tmp_path)
    context = Context(SIZES["tiny"], models={"net": "ownnet_for_reproduce:make"})
    assert context.network("net").shape == (3, 224, 224)
    assert context.network("net").name == "ownnet_for_reproduce:make"


def test_imagenet_takes_any_network_and_any_images(bare, tmp_path):
    net = backbones.create("small_cnn", classes=4, width=4, features=8, seed=1)
    path = tmp_path / "own.safetensors"
    card = {"shape": (3, 24, 24), "classes": list("abcd")}
    checkpoint.save(wrap(net, mean=(0.5,) * 3, std=(0.2,) * 3), path, card)
    rng = np.random.default_rng(0)
    packs = {}
    for name in ("imagenet", "imagenet/outside"):
        file = tmp_path / f"{name.replace('/', '-')}.npz"
        np.savez(file, images=rng.integers(0, 256, (6, 24, 24, 3), dtype=np.uint8))
        packs[name] = f"npz:{file}"
    context = Context(SIZES["tiny"], out=tmp_path / "o", models={"net": str(path)}, data=packs)
    rows = list(run(reproduce.chosen(["pro/imagenet"]), context))
    done = {(r.row, r.column) for r in rows if r.ours is not None}
    assert ("PRO-GEN", "default / imagenet/outside") in done
    assert ("shift of MSP, default", "inside") in done
    missing = {r.note.partition(";")[0] for r in rows if r.column.startswith("AugMix")}
    assert missing == {"not run: no network net-augmix"}
    assert {r.network for r in rows if r.ours is not None} == {"own"}


def test_what_pro_gains_under_attack_is_over_its_base_under_attack(bare, monkeypatch):
    asked, draws = [], np.random.default_rng(5)

    def judged(context, detector, inside, outside, threat, purpose):
        asked.append((detector, len(inside), len(outside["near"]), threat.eps))
        make = lambda: {n: torch.from_numpy(draws.normal(size=40)) for n in ("inside", "near")}
        return make(), make()

    monkeypatch.setattr(tables, "judged", judged)
    monkeypatch.setattr(
        TunedBench, "pixels", lambda self, name: torch.zeros(150, 1, 28, 28, device="cpu")
    )
    world = replace(DIGITS, name="another", level=1 / 255)
    monkeypatch.setattr(tables, "world_of", lambda context, _: world)
    small = Context(SIZES["small"])
    small._networks = {f"another/{role}": small.network("digits/ce") for role in ("ce", "aloe")}
    part = next(iter(EXPERIMENT["adaptive"].parts(small)))
    rows = list(part.make())
    (base, *first), (pro, *second) = asked
    assert first == second == [100, 100, 1 / 255]
    assert isinstance(pro, PRO)
    assert (pro.eps, pro.steps) == (2.5e-4, 1)
    assert type(base) is type(pro.base)
    for attack in ("clean", "standard"):
        at = lambda row, metric, a=attack: ours(rows, row=row, attack=a, metric=metric)
        less = at("PRO-ENT", "auroc") - at("Entropy", "auroc")
        assert at("PRO-ENT", GAIN) == pytest.approx(less)
        (note,) = {r.note for r in rows if r.metric == GAIN and r.attack == attack}
        assert ("each attacked" in note) == (attack == "standard")


@pytest.mark.slow
def test_pro_is_attacked_through_pro(bare):
    rows = list(run(reproduce.chosen(["pro/adaptive"]), bare))
    at = lambda row, attack, metric="auroc": ours(
        rows, row=row, column="default", attack=attack, metric=metric
    )
    for row in ("Entropy", "PRO-ENT"):
        assert at(row, "standard") <= at(row, "clean")
    for attack in ("clean", "standard"):
        less = at("PRO-ENT", attack) - at("Entropy", attack)
        assert at("PRO-ENT", attack, GAIN) == pytest.approx(less)
