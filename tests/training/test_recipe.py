"""Recipes: read from a file, found by name, and missed with a helpful sentence."""

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from refusals import refused

from rood import config
from rood.errors import ConfigError, UnknownNameError
from rood.training.recipe import get, names, read

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.toml"


def test_recipes_fit_the_zoo_and_never_name_a_test_set() -> None:
    assert {"digits-ce", "digits-aloe"} <= set(names())
    for name in names():
        recipe = get(name)
        if name.startswith("digits-"):
            assert recipe.data == "digits:inside"
            for outliers in (recipe.outliers or "digits:outliers").split(","):
                assert outliers.endswith(("digits:outliers", "@share:0-0.6@digits:inside"))
        assert json.dumps(asdict(recipe.settings))
    refused(UnknownNameError, "did you mean 'digits-aloe'", get, "digits-alo")


def test_without_rood_zoo_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert names() == ["digits-ce", "digits-aloe"]
    with pytest.raises(UnknownNameError, match=r"got 'cifar10-aloe': .*pip install \./zoo"):
        get("cifar10-aloe")


def test_a_folder_named_by_ROOD_ZOO_brings_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOD_ZOO", str(tmp_path))
    before = names()
    (tmp_path / "recipes.toml").write_text(
        '[mine]\nlike = "digits-ce"\nsettings = { epochs = 3 }\n[lost]\nlike = "nothing"\n'
        '[round]\nlike = "about"\n[about]\nlike = "round"\n'
        '[digits-ce]\ndata = "digits:inside"\nsettings = { lr = 0.05 }\n'
    )
    assert set(names()) == {*before, "mine", "lost", "round", "about"}
    found = get("mine").settings
    assert (found.epochs, found.lr) == (3, 0.05)  # of its own digits-ce, which comes first
    refused(ConfigError, "expected `like` to name another recipe, got 'nothing'", get, "lost")
    with pytest.raises(ConfigError, match=r"recipe about: .* another recipe, got 'round'"):
        get("round")


def test_the_example_is_read_as_it_stands() -> None:
    recipe = read(config.read(EXAMPLE), EXAMPLE.name)
    assert recipe.objective.name == "aloe"
    assert recipe.objective.eps == 8 / 255
    assert recipe.settings.augment.flip


@pytest.mark.parametrize("eps", ["1/255", "8/255", 0.2])
def test_the_one_step_of_an_ensemble_stays_one_at_any_eps(eps: object) -> None:
    said = {"data": "x", "objective": {"name": "deep_ensemble", "eps": eps}}
    objective = read(said, "here").objective
    assert (objective.attack.steps, objective.attack.random_start) == (1, False)
    assert objective.step >= objective.eps
