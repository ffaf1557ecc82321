"""FORT's tables and figures on digits and a tiny transformer that stand in for everything."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_clip
import torch
from tiny_clip import IN, OUT
from torch.nn.functional import interpolate

from rood.data import load
from rood.detectors import Mahalanobis
from rood.metrics import auroc
from rood.models import backbones, checkpoint
from rood.models.wrap import wrap
from rood_papers.fort import EXPERIMENTS
from rood_papers.fort.claims import TURNED
from rood_papers.fort.systems import attacked
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import UNDECIDED
from rood_papers.framework.context import SIZES, Context
from rood_papers.framework.run import run

INSIDE = "digits:inside"
DATA = {
    "cifar100/fit": f"share:0-0.6@{INSIDE}",
    "cifar100/test": f"share:0.6-1@{INSIDE}",
    "cifar10/fit": f"share:0-0.6@{INSIDE}",
    "cifar10/test": "digits:near",
    "svhn": "digits:patches",
}
SIDE = 32
BY_NAME = {e.name: e for e in EXPERIMENTS}
of_table1, of_table3, of_table4, of_table5 = (
    BY_NAME[f"fort/table{n}"].claims for n in (1, 3, 4, 5)
)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Both networks, untrained, for images a little larger than the digits."""
    place = tmp_path_factory.mktemp("zoo")
    vit = {"size": SIDE, "patch": 8, "width": 12, "depth": 1, "heads": 2}
    card = {"shape": [1, SIDE, SIDE], "classes": [str(i) for i in range(6)]}
    for name, backbone, settings in (
        ("cifar100-vit", "vit", vit),
        ("cifar100-resnet18", "resnet18", {"width": 4, "stem": "large"}),
        ("cifar10-ce", "resnet18", {"width": 4}),
        ("cifar10-large", "resnet18", {"width": 4, "stem": "large"}),
        ("cifar10-augmix", "small_cnn", {"width": 4}),
    ):
        net = backbones.create(backbone, classes=6, channels=1, seed=0, **settings)
        checkpoint.save(wrap(net, mean=(0.1,), std=(0.3,)), place / f"{name}.safetensors", card)
    return place


@pytest.fixture(scope="module")
def rows(zoo, tmp_path_factory):
    """Every experiment once, in one folder."""
    few = replace(SIZES["tiny"], standard=2)  # images for our suite, which takes longest
    context = Context(few, data=DATA, zoo=zoo, out=tmp_path_factory.mktemp("fort"))
    made = list(run(EXPERIMENTS, context))
    return {name: [r for r in made if r.experiment == name] for name in BY_NAME}


def cells(rows):
    return [r for r in rows if r.kind == "cell"]


@pytest.mark.parametrize(
    ("name", "lines", "each"),
    [("table1", 6, 6), ("table3", 12, 5), ("table4", 8, 5), ("table5", 8, 5)],
)
def test_a_table_has_all_its_cells_with_numbers(rows, name, lines, each):
    found = cells(rows[f"fort/{name}"])
    assert len(found) == lines * each
    assert all(r.ours is not None and r.n_out and r.network for r in found)
    assert {r.attack for r in found} >= {"clean", "paper", "standard"}
    shares = [r for r in found if r.metric == "auroc"]
    assert all(0 <= r.low <= r.ours <= r.high <= 1 for r in shares)
    printed = [r for r in found if r.attack != "standard" and "0.25/255" not in r.column]
    turned = [r for r in printed if "inside cifar10" in r.column]
    assert len(turned) == len(printed) / 2
    assert all((r.paper is None) == (r in turned) for r in printed)


@pytest.mark.parametrize("name", [n for n in BY_NAME if "figure" in n and n != "fort/figure8"])
def test_a_figure_has_points(rows, name):
    points = [r for r in rows[name] if r.kind == "point" and r.ours is not None]
    assert len(points) > 20
    assert all(r.group and r.x is not None and r.column and r.metric for r in points)


def test_what_is_not_to_be_had_is_said_and_has_no_number(rows):
    for name, why in (("table2", "no data"), ("figure8", "no data"), ("text", "no people")):
        found = rows[f"fort/{name}"]
        assert found
        assert all(r.ours is None and why in r.note for r in found)


def test_the_number_at_one_level_is_that_of_a_plain_loop(rows, zoo):
    """Mahalanobis on the transformer, image by image and step by step."""
    model = checkpoint.load(zoo / "cifar100-vit.safetensors")
    grown = lambda x: interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)
    fit = Context(SIZES["tiny"], data=DATA).fit_images("cifar100/fit")
    batches = [(grown(x), y) for x, y in fit.batches(100)]
    detector = Mahalanobis(model).fit(batches)
    inside = grown(load(DATA["cifar100/test"]).thin(128).pixels())
    clean = [detector.score(x[None]).item() for x in inside]
    attacked = []
    for x in grown(load("digits:near").thin(16).pixels()):
        here, last = x[None].clone(), None
        for t in range(15):
            here.requires_grad_()
            score = detector.score_images(here)
            (slope,) = torch.autograd.grad(score.sum(), here)
            far = t * 3e-4
            if far >= 1 / 255:  # between the last record and this one
                before, value = last
                share = (1 / 255 - before) / (far - before)
                attacked.append(value + share * (score.item() - value))
                break
            last = far, score.item()
            here = here.detach() - 3e-4 * slope.sign()
    (row,) = [
        r
        for r in rows["fort/table1"]
        if (r.row, r.column, r.attack) == ("Mahalanobis", "cifar10", "paper")
        and r.metric == "auroc"
    ]
    assert row.ours == pytest.approx(auroc(inside=clean, outside=attacked), abs=2e-3)
    assert row.n_in == len(clean)
    assert row.n_out == len(attacked)


def test_the_change_is_the_attacked_number_less_the_clean_one(rows):
    of = {
        (r.row, r.attack, r.metric): r.ours
        for r in cells(rows["fort/table3"])
        if r.column == "cifar10"
    }
    for row in {r for r, _, _ in of}:
        fall = of[row, "paper", "auroc"] - of[row, "clean", "auroc"]
        assert of[row, "paper", "auroc_change"] == pytest.approx(fall)


def test_our_suite_finds_no_less_than_the_trajectory_on_the_same_images(rows):
    for name in ("table1", "table4"):
        here = [r for r in cells(rows[f"fort/{name}"]) if r.metric == "auroc"]
        of = {(r.row, r.attack): r for r in here if r.column == "cifar10"}
        for (row, attack), r in of.items():
            if attack == "standard" and of[row, "paper"].n_out == r.n_out:
                assert r.ours <= of[row, "paper"].ours + 0.02


def test_slips_of_the_paper_are_told_in_place(rows):
    here = [r for r in cells(rows["fort/table3"]) if r.column == "cifar10"]
    of = {(r.row, r.metric, r.attack): r for r in here}
    assert "-19.05" in of["Relative Mahalanobis, ensemble", "auroc_change", "paper"].note
    assert "-19.05" not in of["Mahalanobis, ensemble", "auroc_change", "paper"].note


def test_one_image_moves_in_the_direction_that_is_asked_for(rows):
    for name, grows in (("figure1", True), ("figure2", False), ("figure4", False)):
        before, after = (r.ours for r in cells(rows[f"fort/{name}"]))
        assert (after > before) == grows


def made(experiment, row, column, attack, value):
    return Cell(experiment, row, column, "auroc", attack=attack, ours=value)


@pytest.mark.parametrize(("msp", "holds"), [(0.1, 1.0), (0.6, 0.0), (None, None)])
def test_a_claim_holds_fails_or_is_not_tested(msp, holds):
    values = {"Relative Mahalanobis": 0.7, "Mahalanobis": 0.4, "MSP": msp}
    found = [made("fort/table1", m, "cifar10", "paper", v) for m, v in values.items()]
    first, *others = of_table1(found)
    assert first.ours == holds
    assert [c.ours for c in others] == [None, None]  # nearer, and our suite: not run
    assert "0.700" in first.column


def test_of_detectors_that_tell_nothing_apart_none_is_the_best():
    values = {"Relative Mahalanobis": 0.7, "Mahalanobis": 0.4, "MSP": 0.1}
    found = [made("fort/table1", m, "cifar10", "paper", v) for m, v in values.items()]
    found += [made("fort/table1", m, "cifar10", "clean", 0.6) for m in values]
    first, *_ = of_table1(found)
    assert first.ours is None
    assert "unattacked 0.600, with nothing to lose" in first.column


def test_the_world_turned_round_has_claims_of_its_own_where_it_was_run():
    values = {"Relative Mahalanobis": 0.7, "Mahalanobis": 0.4, "MSP": 0.1}
    weak = [made("fort/table1", m, "cifar10", "clean", 0.6) for m in values]
    weak += [made("fort/table1", m, "cifar10", "paper", v) for m, v in values.items()]
    strong = [made("fort/table1", m, TURNED, "clean", 0.9) for m in values]
    strong += [made("fort/table1", m, TURNED, "paper", v) for m, v in values.items()]
    assert [c.ours for c in of_table1(weak)] == [None, None, None]
    assert [c.ours for c in of_table1(strong)][:4] == [None, None, None, 1.0]
    paper, *_, turned = list(of_table1([*weak, *strong]))[:4]
    assert (paper.ours, turned.ours) == (None, 1.0)
    assert turned.row.startswith("CIFAR-10 inside: ")


def test_of_detectors_that_tell_nothing_apart_neither_pixels_nor_distance_decide():
    few = [
        made("fort/table4", f"Mahalanobis, {side}", "cifar10", attack, v)
        for side, attacked in (("32x32", 0.4), ("network's size", 0.1))
        for attack, v in (("clean", 0.6), ("paper", attacked))
    ]
    far = [
        made("fort/table5", m, column, attack, v)
        for m in ("Mahalanobis", "Relative Mahalanobis")
        for column, attacked in (("cifar10", 0.5), ("svhn", 0.2))
        for attack, v in (("clean", 0.6), ("paper", attacked))
    ]
    assert all(c.ours is None for c in [*of_table4(few), *of_table5(far)])


def test_the_papers_world_has_its_number_of_images_and_the_other_more(tmp_path):
    context = Context(SIZES["small"], out=tmp_path)
    assert [attacked(context, world) for world in ("cifar100", "cifar10")] == [128, 512]


@pytest.mark.parametrize(("few", "holds"), [(0.5, 1.0), (0.22, 0.0), (0.301, 0.5)])
def test_turned_round_an_attacker_of_few_pixels_is_held_against_one_of_many(few, holds):
    found = [
        made("fort/table4", f"Mahalanobis, {side}", TURNED, attack, v)
        for side, attacked in (("32x32", few), ("network's size", 0.2))
        for attack, v in (("clean", 0.9), ("paper", attacked))
    ]
    (decided,) = [c for c in of_table4(found) if c.ours is not None]
    assert decided.row.startswith("CIFAR-10 inside: Mahalanobis: under the paper's attack")
    assert decided.ours == holds


@pytest.mark.parametrize(("half", "holds"), [(0.02, 1.0), (0.1, 0.5)])
def test_scores_whose_intervals_overlap_are_not_ranked(half, holds):
    values = {"Relative Mahalanobis": 0.7, "Mahalanobis": 0.6, "MSP": 0.5}
    found = [
        replace(made("fort/table1", m, TURNED, "paper", v), low=v - half, high=v + half)
        for m, v in values.items()
    ]
    (decided,) = [c for c in of_table1(found) if c.ours is not None]
    assert decided.ours == holds


def test_turned_round_the_mean_is_held_against_its_own_members():
    values = {"first network": 0.5, "second network": 0.6, "ensemble": 0.7}
    found = [
        made("fort/table3", f"Mahalanobis, {m}", TURNED, "paper", v) for m, v in values.items()
    ]
    assert [c.ours for c in of_table3(found) if c.ours is not None] == [1.0]


def test_turned_round_far_is_compared_with_its_own_near():
    numbers = {TURNED: (0.9, 0.4), "svhn, inside cifar10": (0.95, 0.3)}
    found = [
        made("fort/table5", m, column, attack, v + (m != "Mahalanobis") * (attack == "paper") / 10)
        for m in ("Mahalanobis", "Relative Mahalanobis")
        for column, both in numbers.items()
        for attack, v in zip(("clean", "paper"), both, strict=True)
    ]
    claims = {c.row: c.ours for c in of_table5(found) if c.ours is not None}
    assert list(claims.values()) == [0.5, 1.0, 1.0]  # the leads are alike, which decides nothing
    assert all(text.startswith("CIFAR-10 inside: ") for text in claims)


@pytest.mark.parametrize(("both", "holds"), [(0.7, 1.0), (0.55, 0.0)])
def test_the_mean_is_held_against_the_better_member(both, holds):
    values = {"ViT-L/16": 0.5, "R50+ViT-L/32": 0.6, "ensemble": both}
    found = [
        made("fort/table3", f"Mahalanobis, {m}", "cifar10", "paper", v) for m, v in values.items()
    ]
    assert next(of_table3(found)).ours == holds


def test_far_and_near_are_compared_by_lead_and_by_fall():
    numbers = {  # clean and attacked
        ("Mahalanobis", "cifar10"): (0.9, 0.4),
        ("Relative Mahalanobis", "cifar10"): (0.9, 0.7),
        ("Mahalanobis", "svhn"): (0.95, 0.3),
        ("Relative Mahalanobis", "svhn"): (0.95, 0.4),
    }
    found = [
        made("fort/table5", m, where, attack, v)
        for (m, where), both in numbers.items()
        for attack, v in zip(("clean", "paper"), both, strict=True)
    ]
    lead, *falls = list(of_table5(found))[:3]
    assert lead.ours == 1.0
    assert "0.300" in lead.column
    assert [f.ours for f in falls] == [1.0, 1.0]


def test_where_there_is_no_lead_none_can_shrink():
    found = [
        made("fort/table5", m, where, "paper", v)
        for m, where, v in (
            ("Mahalanobis", "cifar10", 0.5),
            ("Relative Mahalanobis", "cifar10", 0.49),
            ("Mahalanobis", "svhn", 0.5),
            ("Relative Mahalanobis", "svhn", 0.4),
        )
    ]
    assert next(of_table5(found)).ours == 0.0


def test_whether_there_is_a_lead_is_decided_by_its_interval_too():
    """A lead of -0.01 within 0.03 may be one, and then it shrinks."""
    wide = lambda row: replace(row, low=row.ours - 0.02, high=row.ours + 0.02)
    table = {
        ("Mahalanobis", "cifar10"): 0.41, ("Relative Mahalanobis", "cifar10"): 0.40,
        ("Mahalanobis", "svhn"): 0.50, ("Relative Mahalanobis", "svhn"): 0.30,
    }  # fmt: skip
    found = [made("table5", m, c, "clean", 0.95) for m, c in table]
    found += [wide(made("table5", m, c, "paper", value)) for (m, c), value in table.items()]
    assert next(of_table5(found)).ours == UNDECIDED


def test_without_any_data_the_first_table_runs_on_the_shipped_digits(monkeypatch, tmp_path):
    monkeypatch.delenv("ROOD_DATA", raising=False)
    context = Context(SIZES["tiny"], out=tmp_path)
    found = cells(run([BY_NAME["fort/table1"]], context))
    assert len(found) == 18
    assert all(r.ours is not None and r.paper is None and "digits" in r.column for r in found)
    assert BY_NAME["fort/table1"].on_digits


def test_clip_is_taken_by_name_with_the_classes_as_its_words(tmp_path, monkeypatch):
    """The path that `--model clip=hf:NAME` takes, with a small model and small sets."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tiny_clip.save(tmp_path / "clip")
    rng, data = np.random.default_rng(0), {}
    for name, words in (("cifar100/test", IN), ("cifar10/test", OUT)):
        file = tmp_path / f"{len(data)}.npz"
        labels = np.arange(20) % len(words)
        images = rng.integers(0, 256, (20, 16, 16, 3)).astype(np.uint8)
        np.savez(file, images=images, labels=labels, classes=np.array(words))
        data[name] = f"npz:{file}"
    models = {"clip": f"hf:{folder}"}
    context = Context(SIZES["tiny"], models=models, data=data, out=tmp_path / "out")
    found = cells(run([BY_NAME["fort/table2"]], context))
    assert len(found) == 5
    assert all(r.ours is not None and r.network == folder.name for r in found)
    of = {r.attack: r.ours for r in found if (r.metric, r.column) == ("auroc", "cifar10")}
    assert of["paper"] < of["clean"]
