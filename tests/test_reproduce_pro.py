"""PRO's tables and figures on what is shipped, and `pro/imagenet` on a network of one's own."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_reproduce import bare_context, rows_of

from rood import reproduce
from rood.detectors import MSP, PRO
from rood.models import backbones, checkpoint
from rood.models.wrap import wrap
from rood.reproduce.experiment import SIZES, Context, ours
from rood.reproduce.pro_bench import CIFAR10, DIGITS, PLAIN, Bench, climbs, rectified
from rood.reproduce.pro_figures import _second, mean_of
from rood.reproduce.pro_tables import table1, table2
from rood.reproduce.run import run


@pytest.fixture
def bare(monkeypatch, tmp_path):
    return bare_context(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Table 1 on what is shipped."""
    return rows_of("pro/table1", tmp_path_factory.mktemp("table1"))


def test_table_1_runs_on_what_is_shipped(rows):
    cells = [r for r in rows if r.kind == "cell"]
    assert {r.row for r in cells} >= {"MSP", "ODIN", "KNN", *PLAIN}
    assert all(0 <= r.low <= r.ours <= r.high <= 1 for r in cells)
    assert {r.network for r in cells} == {"digits-ce", "digits-aloe"}
    assert sum(r.kind == "claim" and r.ours is not None for r in rows) == 7


def test_a_group_is_the_mean_of_its_sets_and_a_cell_what_plain_loops_give(bare, rows):
    at = lambda column, row="PRO-MSP": ours(
        rows, row=row, column=f"default / {column}", metric="auroc"
    )
    far = [at(n) for n in ("digits/patches", "digits/noise")]
    assert at("far") == pytest.approx(np.mean(far))
    assert at("mean") == pytest.approx(np.mean([at("digits/near"), *far]))
    bench = Bench(bare, DIGITS, "ce")
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
    bench = Bench(bare, DIGITS, "ce")
    x = bench.pixels("digits/near")
    whole = climbs(PRO(MSP(bench.model), eps=1e-3, steps=5), x)
    with torch.no_grad():
        for k in (1, 3):
            apart = PRO(MSP(bench.model), eps=1e-3, steps=k).score(x)
            assert torch.allclose(whole[: k + 1].amax(dim=0), apart)


def test_the_near_sets_together_are_as_many_as_asked_for_and_so_are_the_far_ones(tmp_path):
    bench = Bench(Context(replace(SIZES["small"], images=40), out=tmp_path), DIGITS, "ce")
    count = lambda names: sum(len(bench.pixels(n)) for n in names)
    assert [count(n) for n in ((bench.inside,), DIGITS.near, DIGITS.far)] == [40, 40, 40]


def test_steps_are_chosen_on_images_that_no_row_is_judged_on(bare):
    bench = Bench(bare, DIGITS, "ce")
    inside, outside = bench.validation()
    judged = bare.images(bench.inside, limit=10_000)
    assert not np.isin(inside.hashes(), judged.hashes()).any()
    best = rectified(bare, bench.model, "PRO-GEN", inside.pixels(), outside.pixels())
    assert best.steps in (1, 2)
    assert best.base.gamma == 0.01


def test_every_printed_number_of_both_tables_has_its_cell(bare, monkeypatch):
    monkeypatch.setattr(Context, "has", lambda self, *names: True)
    small = Context(SIZES["small"])
    cells = [c for t in (table1, table2) for part in t(small) for c in part.cells]
    values = {(c.experiment, c.row, c.column, c.metric): c.paper for c in cells}
    sets = {"cifar100": "cifar100/test", "places365": "scenes"}
    for fact in (f for f in reproduce.papers.figures() if f["paper"] == "pro"):
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


@pytest.mark.slow
def test_pro_is_attacked_through_pro(bare):
    rows = list(run(reproduce.chosen(["pro/adaptive"]), bare))
    at = lambda row, attack: ours(rows, row=row, column="default", attack=attack)
    for row in ("Entropy", "PRO-ENT"):
        assert at(row, "standard") <= at(row, "clean")
