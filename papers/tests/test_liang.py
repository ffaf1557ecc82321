"""LIANG's tables and figures on digits and the shipped network, which stand in for everything."""

import os
import shutil
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from rood.analysis.matching import Matched
from rood.detectors import MSP, Detector
from rood.metrics import auroc, wilson
from rood.models import backbones, checkpoint
from rood.models import zoo as zoo_of_rood
from rood.models.generative.autoencoder import AutoEncoderNetwork
from rood.models.generative.glow import GlowNetwork
from rood.models.wrap import wrap
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import UNDECIDED
from rood_papers.framework.context import SIZES, Context, Network
from rood_papers.framework.run import run
from rood_papers.liang import EXPERIMENTS
from rood_papers.liang import systems as liang_systems
from rood_papers.liang.claims import tables as claims
from rood_papers.liang.figures import CIFAR10
from rood_papers.liang.systems import (
    CODES,
    SCORES,
    Case,
    code_error,
    direct,
    matched,
    ready,
    shared_code,
)
from rood_papers.liang.tables import beaten, last_fall, lowest, met

FIT, TEST = "share:0-0.6@digits:inside", "share:0.6-1@digits:inside"
WORLDS = ("cifar10", "cifar100", "svhn", "gtsrb")
DATA = {f"{w}/{part}": spec for w in WORLDS for part, spec in (("fit", FIT), ("test", TEST))}
DATA |= {"mnist": TEST, "imagenet": TEST, "chestxray": "digits:patches", "lung-ct": "digits:noise"}
DATA |= {"chestxray/fit": FIT, "chestxray/test": TEST}
NETWORKS = (
    *("cifar10-ce", "cifar100-ce", "gtsrb-ce", "cifar10-oe", "cifar100-oe", "svhn-oe"),
    *("cifar10-calibrated", "svhn-calibrated", "mnist-jem", "net"),
    "chestxray-ce",
    *(f"cifar10-ensemble-{i}" for i in range(5)),
)
EXPOSED = "Outlier Exposure (mean logit - logsumexp)"
BY_NAME = {e.name: e for e in EXPERIMENTS}
TRAINED = [
    f"liang/{n}" for n in ("systems", "certificate", "other_images", "round_trip", "samples")
]
ABSENT = ("figure8", "figure9")
SHIPPED = ("figure5", "figure20", "nll_targets", "ccu", "autoencoder")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """One shipped network under every name."""
    folder = tmp_path_factory.mktemp("zoo")
    shipped = files("rood.models") / "weights"
    for name in NETWORKS:
        for kind in ("safetensors", "json"):
            shutil.copy(str(shipped / f"digits-ce.{kind}"), folder / f"{name}.{kind}")
    return folder


@pytest.fixture(scope="module")
def context(zoo, tmp_path_factory):
    return Context(SIZES["tiny"], data=DATA, zoo=zoo, out=tmp_path_factory.mktemp("liang"))


@pytest.fixture(scope="module")
def rows(context):
    """Every experiment once, in one folder; test_trained_systems.py has those of its systems."""
    made = list(run([e for e in EXPERIMENTS if e.name not in TRAINED], context))
    return {name: [r for r in made if r.experiment == name] for name in BY_NAME}


def cells(rows):
    return [r for r in rows if r.kind == "cell"]


@pytest.mark.parametrize(
    ("name", "lines", "direct"),
    [
        ("table1", 6, 6),
        ("table2", 16, 4),
        ("table3", 4, 2),
        ("table4", 4, 2),
        ("table5", 3, 3),
        ("table6", 2, 2),
        ("table7", 2, 2),
        ("table8", 3, 3),
        ("figure17", 1, 1),
        ("medical", 2, 2),
    ],
)
def test_a_table_has_all_its_cells_with_numbers(rows, name, lines, direct):
    found = cells(rows[f"liang/{name}"])
    assert len(found) == 4 * lines + direct
    numbers = [r for r in found if r.metric == "auroc"]
    assert all(r.ours is not None and r.n_in and r.network for r in numbers)
    assert all(0 <= r.low <= r.ours <= r.high <= 1 for r in numbers)
    printed = [r for r in found if r.paper is not None]
    with_numbers = 0 if name == "medical" else lines  # in place of what the paper ran
    assert [(r.attack, r.metric) for r in printed] == [("official", "auroc")] * with_numbers


@pytest.mark.parametrize("name", ["table1", "table3", "table5", "table6", "table8"])
def test_a_table_shows_how_each_loss_fell(rows, name):
    """One curve a line, from the first loss on."""
    points = [r for r in rows[f"liang/{name}"] if r.kind == "point"]
    lines = {r.row for r in points}
    parts = {r.part for r in rows[f"liang/{name}"] if r.kind == "cell"}
    assert len(lines) == len(parts)
    for line in lines:
        curve = [r for r in points if r.row == line]
        assert [r.x for r in curve] == [0, 1, 2]  # all steps of `tiny`
        assert curve[0].ours == 1
        assert curve[-1].ours < 1


@pytest.mark.parametrize("name", ["scatter", "histograms", "losses", "figure3", "figure11"])
def test_a_figure_has_points(rows, name):
    points = [r for r in rows[f"liang/{name}"] if r.kind == "point" and r.ours is not None]
    assert len(points) > 20
    assert all(r.group and r.x is not None for r in points)


def test_a_histogram_counts_every_image_once(rows):
    bars = [r for r in rows["liang/histograms"] if r.row == "ODIN"]
    for group in ("in-distribution", "start", "attacked"):
        assert sum(r.ours for r in bars if r.group == group) == pytest.approx(1)


def test_a_histogram_of_errors_names_its_axis(rows):
    bars = [r for r in rows["liang/figure11"] if r.kind == "point" and r.ours is not None]
    assert {(r.column, r.metric) for r in bars} == {("log10 of the MAPE", "share of images")}
    assert sum(r.ours for r in bars) == pytest.approx(1)


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_not_to_be_had_is_said_and_has_no_number(rows, name):
    found = rows[f"liang/{name}"]
    assert found
    assert all(r.ours is None and "not run: no " in r.note for r in found)


@pytest.mark.skipif("ROOD_DATA" not in os.environ, reason="ROOD_DATA is not set")
@pytest.mark.parametrize("name", SHIPPED)
def test_systems_with_a_training_of_their_own_run_on_the_shipped_networks(rows, name):
    found = rows[f"liang/{name}"]
    assert any(r.ours is not None for r in found)
    assert all(r.ours is not None or "not run: no " in r.note for r in found)


def test_a_gallery_is_a_picture_of_three_rows(rows, context):
    found = [r for r in rows["liang/galleries"] if r.file]
    assert len(found) == 9
    with Image.open(context.out / found[0].file) as image:
        assert image.size == (8 * 30, 3 * 30)


def test_the_number_of_a_match_is_that_of_a_plain_loop(context, zoo):
    """Adamax as it is written down, image by image, on gradients of unit length."""
    case = replace(CIFAR10, eps=5.0, steps=3)
    s, found = ready(context, case), matched(context, case)
    model = checkpoint.load(zoo / "cifar10-ce.safetensors")
    for i in (0, 7):
        x_in, start = found.inside[i : i + 1], s.outside[i : i + 1]
        code = model(x_in).logits
        first = _first_iterate(context, case, i)
        x, mean, largest = first, torch.zeros_like(start), torch.zeros_like(start)
        for t in range(1, 4):
            x = x.detach().requires_grad_()
            loss = (model(x).logits - code).square().sum()
            (g,) = torch.autograd.grad(-loss, x)
            unit = g / g.norm()
            mean = 0.9 * mean + 0.1 * unit
            largest = torch.maximum(0.999 * largest, unit.abs() + 1e-8)
            x = x.detach() + 0.05 / (1 - 0.9**t) * mean / largest
            moved = x - start
            x = (start + moved * min(1.0, 5.0 / moved.norm().item())).clamp(0, 1)
        better = (model(x).logits - code).norm() < (model(start).logits - code).norm()
        assert better
        torch.testing.assert_close(found.images[i], x[0], atol=1e-4, rtol=0)


def _first_iterate(context, case, i):
    """Where the attack begins: its own noise, which belongs to the image."""
    from rood.seeds import Noise, generator
    from rood.threat import L2

    start = ready(context, case).outside[i : i + 1]
    noise = Noise(start, generator(context.seed, "match")).uniform()
    return L2(case.eps).project(start + case.eps * (2 * noise - 1), start)


def test_an_auroc_is_that_of_the_scores_of_both_sides(rows, context, zoo):
    model = checkpoint.load(zoo / "cifar10-oe.safetensors")
    found = matched(context, Case("cifar10", ("cifar10/oe",), EXPOSED, "logits", steps=10_000))
    z = lambda x: [model(v[None]).logits[0].double() for v in x]
    score = lambda x: [(v.mean() - v.logsumexp(0)).item() for v in z(x)]
    value = auroc(inside=score(found.inside), outside=score(found.images))
    of = {
        r.column[:7]: r.ours
        for r in rows["liang/table5"]
        if r.attack == "official" and r.metric == "auroc"
    }
    assert of["cifar10"] == pytest.approx(value)


def test_scores_with_one_code_share_their_images(context):
    case = Case("cifar10", ("cifar10/ce",), "ODIN T=1 PM=0", "preprocessed logits", steps=100)
    other = replace(case, score="ODIN T=1000 PM=0")
    stepped = replace(case, score="ODIN T=1 PM=0.004")
    assert matched(context, case) is matched(context, other)
    assert matched(context, case) is not matched(context, stepped)
    gram = replace(case, score="Gram total deviation, p=1..5", code="score")
    assert shared_code(gram) != shared_code(replace(gram, score="MSP"))


def test_scores_codes_and_starts_have_the_names_of_the_tables():
    assert len(SCORES) == 1 + 16 + 2 + 1 + 1 + 1 + 1 + 3 + 2 + 2 + 3 + 10
    assert {"logits", "features", "score", "layers", "members"} <= set(CODES)
    assert set(liang_systems.STARTS) == {"noise", "spiral", "checkerboard", "chestxray", "lung-ct"}


def test_what_enters_the_classifier_of_a_vgg_is_what_its_convolutions_end_in():
    """Not the input of its last layer: two hidden ones lie between."""
    model = wrap(backbones.create("vgg13", classes=4, seed=0, width=2), mean=(0.5,), std=(0.5,))
    x = torch.rand(3, 3, 32, 32)
    code = CODES["classifier input"](MSP(model), [model], x)
    ends = model.net.layers((x - 0.5) / 0.5).flatten(1)
    torch.testing.assert_close(code(x), ends)
    assert not torch.equal(code(x), model(x).features)


def test_without_hidden_layers_the_features_enter_the_classifier(context):
    model = context.network("cifar10/ce").model
    x = context.pixels("cifar10/test", limit=2)
    code = CODES["classifier input"](MSP(model), [model], x)
    assert torch.equal(code(x), model(x).features)


def test_starts_of_one_image_are_alike_and_noise_is_not(context):
    for start, alike in (("chestxray", True), ("spiral", True), ("noise", False)):
        x = ready(context, replace(CIFAR10, start=start)).outside
        assert bool((x[0] == x[1]).all()) == alike


def test_a_flat_end_of_a_loss_is_told_from_a_falling_one(context):
    found = matched(context, replace(CIFAR10, eps=5.0, steps=3))
    flat = torch.cat([torch.linspace(100, 1, 80), torch.ones(20)])
    falling = torch.linspace(100, 1, 100)
    as_losses = lambda v: replace(found, losses=v[:, None].expand(-1, 8))
    assert last_fall(as_losses(flat)).value == pytest.approx(0, abs=1e-6)
    assert last_fall(as_losses(falling)).value == pytest.approx(0.1, abs=0.02)
    one_falls = replace(found, losses=torch.stack([*[flat] * 7, falling], dim=1))
    assert last_fall(one_falls) == pytest.approx((0, 0, 0.1), abs=0.02)


@pytest.fixture(scope="module")
def generative(tmp_path_factory):
    """A flow, an auto-encoder and a classifier, none of them trained for it."""
    data = {"fashion-mnist": TEST, "fashion/fit": FIT}
    context = Context(SIZES["tiny"], data=data, out=tmp_path_factory.mktemp("generative"))
    base = zoo_of_rood.load("digits-ce")
    flow = GlowNetwork.beside(base, levels=2, steps=2, width=8)
    some = context.pixels("fashion-mnist", limit=32)
    GlowNetwork.of(flow).settle(some, context.generator("settle"))
    coder = AutoEncoderNetwork.beside(base, size=28, width=4, numbers=8)
    for kind, model in (("glow", flow), ("autoencoder", coder), ("ccu", base)):
        context._networks[f"fashion/{kind}"] = Network(model, f"fashion-{kind}", (1, 28, 28))
    return context


def test_what_is_more_than_an_encoder_is_taken_where_it_is_there(generative):
    names = ("figure5", "figure20", "nll_targets", "ccu", "autoencoder")
    found = list(run([BY_NAME[f"liang/{n}"] for n in names], generative))
    assert all(r.ours is not None for r in found if r.kind != "claim")
    count = {n: len([r for r in found if r.experiment == f"liang/{n}"]) for n in names}
    assert count == {"figure5": 8, "figure20": 3, "nll_targets": 10, "ccu": 6, "autoencoder": 6}
    (printed,) = [r.paper for r in found if r.metric == "bits_per_dim" and r.paper]
    assert printed == 3.5268


def test_likelihoods_move_towards_those_asked_for(generative):
    rows = list(run([BY_NAME["liang/nll_targets"]], _again(generative)))
    points = sorted((r.x, r.ours) for r in rows if r.kind == "point")
    asked, got = zip(*points, strict=True)
    assert np.corrcoef(asked, got)[0, 1] > 0.9
    (share,) = [r.ours for r in rows if r.metric == "met"]
    close = [abs(b - a) <= 0.01 * abs(a) for a, b in points]
    assert share == sum(close) / len(close)


@pytest.mark.parametrize(("found", "outcome"), [(90, 1.0), (52, 0.5), (10, 0.0)])
def test_most_likelihoods_are_met_or_not(found, outcome):
    assert met([(1.0, 1.02), (100.0, 100.9), (9.0, 9.08), (-1.0, -1.005)]).value == 0.75
    pairs = [(4.0, 4.03)] * found + [(4.0, 5.0)] * (100 - found)
    cell = Cell(experiment="liang/nll_targets", row="NLL", column="spiral", metric="met")
    (told,) = BY_NAME["liang/nll_targets"].claims([cell.found(met(pairs))])
    assert told.ours == outcome


@pytest.mark.parametrize(("error", "outcome"), [(0.002, 1.0), (0.3, None)])
def test_a_code_that_was_not_found_says_nothing_of_its_score(error, outcome):
    cell = Cell(experiment="liang/autoencoder", row="a", column="spiral", metric="auroc")
    rows = [replace(cell, attack=a).found(1.0) for a in ("clean", "official", "standard")]
    rows.append(replace(cell, attack="official", metric="mape_median").found(error))
    matching, own = BY_NAME["liang/autoencoder"].claims(rows)
    assert (matching.ours, own.ours) == (outcome, 1.0)
    assert "official 1.000" in matching.column


@pytest.mark.parametrize(("error", "known"), [(0.02, True), (np.inf, False), (np.nan, False)])
def test_codes_of_nothing_have_no_relative_error(error, known):
    x, cell = torch.rand(8, 1, 2, 2), made("mape_median", "official", None)
    found = code_error(Matched(x, x, np.full(8, error), torch.rand(3, 8)), cell, "net")
    if known:
        assert (found.ours, found.n_in, found.n_out, found.network) == (0.02, 8, 8, "net")
    else:
        assert found.ours is None
        assert found.note.startswith("not run: codes of 0")


def test_a_suite_that_found_less_than_matching_says_so():
    assert beaten(0.7, 0.8) == "matching went lower: no bound"
    assert beaten(0.7, 0.6) == ""


def _again(context):
    """A fresh folder, in which nothing is done yet."""
    return replace(context, out=context.out / "again")


def made(metric, attack, value, paper=None):
    return Cell("liang/table5", "a", "b", metric, attack=attack, ours=value, paper=paper)


class Level(Detector):
    """Has no slope where the first pixel is dark."""

    def score_images(self, x):
        return (x[:, 0, 0, 0] - 0.5).relu() + 0 * x.flatten(1).sum(dim=1)


def test_starts_without_a_slope_are_counted(context, monkeypatch):
    starts = torch.zeros(4, 1, 8, 8)
    starts[0, 0, 0, 0] = 0.9
    model = wrap(backbones.create("small_cnn", classes=2, channels=1, width=4))
    of = SimpleNamespace(detector=Level(model), outside=starts)
    monkeypatch.setattr(liang_systems, "ready", lambda *_: of)
    assert liang_systems.stuck(context, None) == 0.75


CLEAN = made("auroc", "clean", 0.95)


def test_claims_count_what_holds():
    found = [
        CLEAN,
        made("auroc", "official", 0.51, paper=0.5),
        made("auroc", "official", 0.9, paper=0.2),  # the paper itself is not at one half
        made("last_fall", "official", 0.2),
        made("auroc", "standard", 0.0),
    ]
    half, elsewhere, flat, direct = claims("liang/table5", found)
    assert (half.ours, elsewhere.ours, flat.ours, direct.ours) == (1.0, 0.0, 0.0, 1.0)
    near = [CLEAN, replace(found[2], ours=0.29)]
    assert [c.ours for c in claims("liang/table5", near)] == [None, 1.0, None, None]
    assert half.column.startswith("1 of 1")
    assert [c.ours for c in claims("liang/table5", [])] == [None] * 3


def test_a_match_at_the_border_is_undecided():
    """0.549 is within 0.05 of one half; as little as 0.001 more would not be."""
    first = lambda value: next(claims("t", [CLEAN, made("auroc", "official", value, paper=0.5)]))
    assert [first(v).ours for v in (0.54, 0.549, 0.553, 0.56)] == [1.0, UNDECIDED, UNDECIDED, 0.0]
    assert first(0.549).column == "0 of 1, 0.549 to 0.549; 1 at the border"


def test_detectors_that_told_nothing_apart_have_nothing_to_lose():
    blind = replace(CLEAN, ours=0.16)
    found = [made("auroc", "official", 0.5, paper=0.5), made("auroc", "standard", 0.0)]
    assert [c.ours for c in claims("liang/table8", [CLEAN, *found])] == [1.0, None, 1.0]
    assert [c.ours for c in claims("liang/table8", [blind, *found])] == [None] * 3


def test_attacks_that_could_not_begin_tell_nothing():
    note = "another network; no slope at 100% of the starts"
    found = [CLEAN, made("last_fall", "official", 0.0), made("auroc", "standard", 0.9)]
    assert [c.ours for c in claims("liang/table6", found)] == [None, None, 0.0]
    stuck = [*found[:2], replace(found[2], note=note)]
    assert [c.ours for c in claims("liang/table6", stuck)] == [None] * 3


def test_a_match_that_was_cut_short_refutes_nothing():
    missed = made("auroc", "official", 0.7, paper=0.5)
    cut = replace(missed, note="another network; 200 steps, the paper 1000")
    whole = replace(missed, note="another network; 1000 steps, the paper 1000")
    first = lambda *rows: next(iter(claims("liang/table5", [CLEAN, *rows])))
    assert (first(cut).ours, first(whole).ours, first(cut, whole).ours) == (UNDECIDED, 0.0, 0.0)
    assert first(cut).column == "0 of 1, 0.700 to 0.700; 1 cut short"


def test_one_image_is_one_image_however_many_pairs_it_starts(context, rows):
    """From one spiral an attack without a target gives one image, and the interval says so."""
    s = ready(context, Case("cifar10", ("cifar10/ce",), "MSP", "logits", "spiral", 5.0))
    assert s.alike
    n, scores = len(s.clean_in), s.clean_in.median().expand(8)
    found, m = s.ranked(scores)
    below = (s.clean_in < scores[0]).double().mean() + (s.clean_in == scores[0]).double().mean() / 2
    assert m == 1
    assert found.value == pytest.approx(below.item())
    assert found == wilson(found.value, n)
    assert s.ranked(scores, paired=True)[1] == 8
    noise = ready(context, Case("cifar10", ("cifar10/ce",), "MSP", "logits"))
    assert not noise.alike
    assert noise.ranked(scores)[1] == 8
    counts = {(r.attack, r.metric): r.n_out for r in cells(rows["liang/table8"])}
    assert counts["clean", "auroc"] == counts["standard", "auroc"] == 1
    assert counts["official", "auroc"] == 8


def test_a_score_that_many_images_share_is_named():
    many = torch.tensor([0.0] * 44 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert "that of 88% inside" in lowest(many)
    assert lowest(torch.arange(100.0)) == ""


def test_whether_most_codes_end_close_is_said_of_every_start():
    close = lambda where, share: replace(made("mape_below_0.001", "official", share), column=where)
    told = lambda *rows: next(BY_NAME["liang/figure3"].claims(rows)).ours
    assert told(close("noise", 0.9), close("lung-ct", 0.6)) == 1.0
    assert told(close("noise", 0.9), close("lung-ct", 0.1)) == 0.0


def test_a_code_forgets_at_least_what_it_cannot_hold(rows):
    for r in cells(rows["liang/dimensions"]):
        assert r.ours >= 784 - 64


def test_without_any_data_the_presets_run_on_the_shipped_digits(monkeypatch, tmp_path):
    monkeypatch.delenv("ROOD_DATA", raising=False)
    context = Context(SIZES["tiny"], out=tmp_path)
    found = cells(run([BY_NAME["liang/presets"]], context))
    of = {(r.attack, r.metric): r.ours for r in found}
    assert len(found) == 7
    assert all(v is not None for v in of.values())
    assert abs(of["official", "auroc"] - 0.5) < 0.1
    assert of["shrinking", "mape_median"] < of["official", "mape_median"]
    assert of["standard", "auroc"] < 0.1
    assert BY_NAME["liang/presets"].on_digits
    assert np.isfinite(list(of.values())).all()


def test_the_number_of_our_suite_is_that_of_its_scores_outside(rows, context):
    for world in ("svhn", "cifar10", "cifar100"):
        case = Case(world, (f"{world}/oe",), EXPOSED, "logits", steps=10_000)
        value = auroc(inside=ready(context, case).clean_in, outside=direct(context, case))
        (row,) = [
            r
            for r in rows["liang/table5"]
            if r.attack == "standard" and r.column.startswith(f"{world} ")
        ]
        assert row.ours == pytest.approx(value)
        assert value < 0.45


@pytest.mark.parametrize(
    ("error", "steps", "outcome"),
    [
        (0.0005, "1000 steps, the paper 10000", 1.0),
        (0.02, "10000 steps, the paper 10000", 0.0),
        (0.02, "1000 steps, the paper 10000", UNDECIDED),  # more steps might have done it
    ],
)
def test_a_code_is_found_or_not_or_its_search_was_cut_short(error, steps, outcome):
    found = [
        CLEAN,
        replace(made("auroc", "official", 0.5), note=steps),
        made("mape_median", "official", error),
        made("last_fall", "official", 0.001),
        made("auroc", "standard", 0.1),
    ]
    told = [c.ours for c in BY_NAME["liang/medical"].claims(found)]
    assert told == [outcome, 1.0, 1.0]
