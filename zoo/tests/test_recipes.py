"""The recipes of the zoo: their names, their separation of data, and errors without data."""

import json
from dataclasses import asdict

import pytest
import torch
from typer.testing import CliRunner

from rood.cli import app
from rood.data.base import ImageSet
from rood.models import zoo
from rood.training import job
from rood.training.recipe import get, names


def test_every_network_of_the_zoo_has_a_recipe():
    assert set(zoo.names()) <= set(names())


def test_the_zoo_is_there_by_name():
    wanted = {"digits-ce", "digits-aloe", "svhn-ce", "svhn-oe", "cifar10-augmix"}
    for family in ("cifar10", "cifar100", "gtsrb"):
        wanted |= {f"{family}-{o}" for o in ("ce", "oe", "adv", "aoe", "aloe")}
    wanted |= {"cifar10-adv-8", "cifar10-aloe-8", *(f"cifar10-ensemble-{i}" for i in range(5))}
    assert wanted <= set(names())
    seeds = [get(f"cifar10-ensemble-{i}").settings.seed for i in range(5)]
    assert seeds == list(range(5))
    small = get("cifar10-ensemble-3").settings
    assert (small.epochs, small.lr, small.augment.flip) == (20, 0.2, True)
    moved = get("cifar10-large").settings.augment  # as on 32x32, four times as large
    assert (moved.shift, moved.flip) == (16, True)
    large = [r for r in map(get, names()) if r.backbone == "resnet18"]
    assert all(r.architecture["width"] < 64 for r in large)  # or the weights would be too many


BUDGETS = {  # where they are not 1/255, or 8/255 for names that end in -8
    "cifar10-certified-2": 2 / 255,
    "cifar10-certified-3": 0.01,
    "cifar10-certified-3-cifar100": 0.01,
    "svhn-certified": 8 / 255,
}


@pytest.mark.parametrize("name", names())
def test_no_recipe_trains_on_what_it_is_tested_on(name):
    recipe = get(name)
    assert json.dumps(asdict(recipe.settings))
    tests = {recipe.held_out, *recipe.unseen} - {None}
    assert recipe.data not in tests
    assert not [t for t in tests if t in (recipe.outliers or "")]
    assert recipe.objective.needs_outliers == (recipe.outliers is not None)
    if hasattr(recipe.objective, "eps") and not name.startswith("digits"):
        usual = 8 / 255 if name.endswith("-8") else 1 / 255
        assert recipe.objective.eps == BUDGETS.get(name, usual)
    few = ImageSet("few", torch.rand(4, 3, 32, 32), torch.arange(4), tuple("abcd"))
    start = job.start(recipe, few)
    assert sum(p.numel() for p in start.parameters()) < 12_000_000


@pytest.mark.parametrize("name", [n for n in names() if not n.startswith("digits")])
def test_a_recipe_without_its_data_fails_in_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.delenv("ROOD_DATA", raising=False)
    monkeypatch.delenv("ROOD_CIFAR10", raising=False)
    result = CliRunner().invoke(
        app, ["train", "--name", name, "--out", str(tmp_path / "x"), "--device", "cpu"]
    )
    assert result.exit_code == 1, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    assert "environment variable ROOD_" in line
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").iterdir())
