"""The objective of classes and scalar head, and the detector that reads the head."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy, softplus

from rood.detectors.head import Head
from rood.errors import CapabilityError, InputError
from rood.models import backbones, checkpoint
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.testing.world import toy_world
from rood.training.objectives.base import Batch
from rood.training.objectives.joint import Joint


@pytest.fixture(scope="module")
def toy():
    return toy_world()


def batch_of(toy):
    x, y = toy.train[0]
    return Batch(x[:7], y[:7], toy.outside[:5])


def no_steps(eps=1e-9):
    """A ball so small that the attack changes nothing that float32 shows in the loss."""
    return Joint(eps=eps, steps=1, step=eps, weight=0.5)


def test_loss_is_the_formula(toy):
    model, batch = scored(toy.model), batch_of(toy)
    out, far = model(batch.x), model(batch.outliers)
    wanted = cross_entropy(out.logits, batch.y) + softplus(out.head).mean()
    wanted += 0.5 * softplus(-far.head).mean()
    found = no_steps().loss(model, batch, generator(0, "joint"))
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_each_part_is_attacked_through_its_own_output(toy, monkeypatch):
    model, batch = scored(toy.model), batch_of(toy)
    seen = {}

    def spy(self, goal, x, threat, noise):
        seen["values"], seen["eps"] = goal(x), threat.eps
        return x

    monkeypatch.setattr("rood.attacks.pgd.PGD.__call__", spy)
    Joint(eps=8 / 255, steps=7, step=2.5 / 255).loss(model, batch, generator(0, "joint"))
    out, far = model(batch.x), model(batch.outliers)
    classes = cross_entropy(out.logits[:3], batch.y[:3], reduction="none")
    wanted = torch.cat([classes, out.head[3:], -far.head])  # half of 7 images: 3
    torch.testing.assert_close(seen["values"], wanted)
    assert seen["eps"] == 8 / 255


@pytest.mark.parametrize(("share", "first"), [(0.0, 7), (0.75, 1), (1.0, 0)])
def test_a_share_of_the_images_climbs_the_head(toy, monkeypatch, share, first):
    model, batch, seen = scored(toy.model), batch_of(toy), []
    monkeypatch.setattr("rood.attacks.pgd.PGD.__call__", lambda s, g, x, *_: seen.append(g(x)) or x)
    Joint(eps=8 / 255, steps=7, step=2.5 / 255, through_head=share).loss(
        model, batch, generator(0, "joint")
    )
    out = model(batch.x)
    torch.testing.assert_close(seen[0][first:7], out.head[first:])
    classes = cross_entropy(out.logits[:first], batch.y[:first], reduction="none")
    torch.testing.assert_close(seen[0][:first], classes)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_the_share_is_checked(wrong):
    with pytest.raises(InputError, match="0 <= through_head <= 1"):
        Joint(through_head=wrong)


def test_attack_makes_the_loss_larger(toy):
    model, batch = scored(toy.model), batch_of(toy)
    clean = no_steps().loss(model, batch, generator(0, "joint"))
    hard = Joint(eps=8 / 255, steps=7, step=2.5 / 255, weight=0.5)
    assert hard.loss(model, batch, generator(0, "joint")) > clean + 0.01


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_weight_is_checked(wrong):
    with pytest.raises(InputError, match="weight >= 0"):
        Joint(weight=wrong)


def test_networks_without_a_scalar_head_are_refused(toy):
    with pytest.raises(CapabilityError, match=r"scalar head.*scored=true"):
        Head(toy.model)
    with pytest.raises(CapabilityError, match=r"scalar head.*scored=true"):
        no_steps().loss(copy.deepcopy(toy.model), batch_of(toy), generator(0, "joint"))


def test_head_is_linear_in_the_features(toy):
    model = scored(toy.model)
    out, layer = model(toy.inside), model.scalar_head
    wanted = out.features.double() @ layer.weight.double()[0] + layer.bias.double()
    torch.testing.assert_close(Head(model).score(toy.inside).double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out.logits, toy.model(toy.inside).logits)  # the classes stay


SMALL = {"preact_resnet": {"width": 4}, "wide_resnet": {"depth": 10, "widen": 1}, "small_cnn": {}}


@pytest.mark.parametrize("name", SMALL)
def test_scored_backbones_survive_a_checkpoint(name, tmp_path):
    net = backbones.create(name, classes=4, scored=True, **SMALL[name])
    model, x = wrap(net), torch.rand(3, 3, 32, 32, generator=generator(0, "x"))
    checkpoint.save(
        model, tmp_path / "a.safetensors", {"shape": [3, 32, 32], "classes": list("abcd")}
    )
    again = checkpoint.load(tmp_path / "a.safetensors")
    assert torch.equal(Head(again).score(x), Head(model).score(x))
    assert backbones.create(name, classes=4, **SMALL[name]).settings().get("scored") is None


def test_a_scalar_head_is_not_taken_for_the_classes(toy):
    assert scored(toy.model).classes == toy.model.classes  # before any image was seen


def test_other_networks_have_no_scalar_output(toy):
    assert toy.model(toy.inside).head is None
