"""Objectives with known answers: formulas by hand, inner maxima that are known."""

import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from toy_training import drawn

from rood.errors import InputError
from rood.models import backbones
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.numerics.softmax import uniform_cross_entropy
from rood.training import objectives
from rood.training.objectives import ALOE, Batch, CrossEntropy

SIDE = 8


def in_training() -> Model:
    net = backbones.create("small_cnn", classes=3, channels=1, width=4, features=8)
    return wrap(net).train().requires_grad_()


def batch(n: int = 12) -> Batch:
    x, o = torch.rand(2, n, 1, SIDE, SIDE, generator=drawn(0))
    return Batch(x, torch.arange(n) % 3, o)


def test_cross_entropy_is_cross_entropy() -> None:
    model, given = in_training(), batch()
    loss = CrossEntropy().loss(model, given, drawn(0))
    p = model(given.x).logits.double().softmax(dim=1)
    by_hand = -sum(math.log(p[i, y].item()) for i, y in enumerate(given.y.tolist())) / len(given.y)
    assert loss.item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_aloe_without_a_budget_is_outlier_exposure(weight: float) -> None:
    model, given = in_training(), batch()
    assert given.outliers is not None
    loss = ALOE(eps=0, weight=weight).loss(model, given, drawn(0))
    z = model(torch.cat([given.x, given.outliers])).logits  # one pass: shared batch statistics
    n = len(given.x)
    expected = cross_entropy(z[:n], given.y) + weight * uniform_cross_entropy(z[n:]).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def linear_model() -> Model:
    net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2))
    with torch.no_grad():
        net[1].weight.copy_(torch.randn(2, SIDE * SIDE, generator=drawn(3)) / SIDE)
        net[1].bias.zero_()
    return wrap(net).requires_grad_()


@pytest.mark.parametrize("bn", ["eval", "train"])  # the same where there is no batch norm
def test_the_inner_maxima_of_a_linear_network_are_the_corners(bn: str) -> None:
    """The loss falls with the margin of the label, which is linear: so is its worst corner's place.

    An outlier's loss rises to both sides; far from a tie, the nearer side is found from any start.
    """
    model, eps = linear_model(), 0.05
    x = 0.3 + 0.4 * torch.rand(6, 1, SIDE, SIDE, generator=drawn(4))
    y = torch.tensor([0, 1] * 3)
    o = 0.3 + 0.4 * torch.rand(6, 1, SIDE, SIDE, generator=drawn(5))
    w = (model.head.weight[0] - model.head.weight[1]).detach().view(1, 1, SIDE, SIDE)
    bias = 2 * torch.tensor([1.0, -1.0])  # far from a tie, so that no start changes sides
    with torch.no_grad():
        model.head.bias.copy_(bias)
    side = torch.where(y == 0, 1.0, -1.0).view(-1, 1, 1, 1)
    certain = (model(o).logits @ torch.tensor([1.0, -1.0])).sign().view(-1, 1, 1, 1)
    expected = (
        cross_entropy(model(x - eps * side * w.sign()).logits, y)
        + 0.5 * uniform_cross_entropy(model(o + eps * certain * w.sign()).logits).mean()
    )
    loss = ALOE(eps=eps, steps=20, step=0.01, bn=bn).loss(model, Batch(x, y, o), drawn(0))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_inner_attack_raises_both_parts() -> None:
    model, given = in_training().eval(), batch()  # eval: the batch has no part in the loss
    clean, attacked = (ALOE(eps=e, steps=5, step=0.05, weight=0.0) for e in (0.0, 0.1))
    assert attacked.loss(model, given, drawn(0)) > clean.loss(model, given, drawn(0)) + 0.01
    outliers = [
        ALOE(eps=e, steps=5, step=0.05, weight=1.0).loss(model, given, drawn(0))
        - ALOE(eps=e, steps=5, step=0.05, weight=0.0).loss(model, given, drawn(0))
        for e in (0.0, 0.1)
    ]
    assert outliers[1] > outliers[0] + 1e-3


def test_the_random_start_is_really_random() -> None:
    model, given = in_training().eval(), batch()
    objective = ALOE(eps=1 / 255)
    first, again, other = (objective.loss(model, given, drawn(s)).item() for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_inner_attack_is_the_papers() -> None:
    for level, steps in ((1, 2), (2, 3), (4, 5), (8, 9)):
        assert ALOE(eps=level / 255).attack.steps == steps
    assert ALOE().attack.step == 1 / 255
    assert ALOE().attack.random_start
    assert ALOE().weight == 0.5


def test_every_parameter_gets_a_gradient_and_nothing_else_does() -> None:
    model, given = in_training(), batch()
    ALOE(eps=0.1, steps=2, step=0.05).loss(model, given, drawn(0)).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.abs().sum() > 0, name
    assert given.x.grad is None


def test_batch_norm_statistics_move_once_and_modes_stay() -> None:
    model = in_training()
    frozen = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    frozen.eval()
    modes = [m.training for m in model.modules()]
    ALOE(eps=0.1, steps=3, step=0.05).loss(model, batch(), drawn(0))
    assert [m.training for m in model.modules()] == modes
    counts = [
        int(m.num_batches_tracked)
        for m in model.modules()
        if isinstance(m, nn.BatchNorm2d) and m.num_batches_tracked is not None
    ]
    assert counts == [0, 1, 1, 1]


def test_a_failing_attack_leaves_the_modes_too() -> None:
    model, given = in_training(), batch()
    with pytest.raises(IndexError, match="out of bounds"):
        ALOE(eps=0.1, steps=2, step=0.1).loss(model, given._replace(y=given.y + 9), drawn(0))
    assert all(m.training for m in model.modules())


@pytest.mark.parametrize("outliers", [None, torch.zeros(0, 1, SIDE, SIDE)])
def test_missing_outliers_are_said(outliers: Tensor | None) -> None:
    with pytest.raises(InputError, match=r"aloe needs outliers, got none: "):
        ALOE().loss(in_training(), batch()._replace(outliers=outliers), drawn(0))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"eps": -0.1}, "eps >= 0"),
        ({"weight": -1.0}, "weight >= 0"),
        ({"eps": 0.1, "steps": 5}, r"steps x step >= eps = 0.1.* got 5 x 0.0039"),
        ({"steps": 0}, "steps >= 1"),
    ],
)
def test_settings_that_make_no_objective_are_refused(values: dict[str, float], match: str) -> None:
    with pytest.raises(InputError, match=match):
        ALOE(**values)


@pytest.mark.parametrize("name", objectives.registry.names())
def test_every_objective_states_its_formula_and_source(name: str) -> None:
    text = objectives.registry.cls(name).__doc__ or ""
    assert text.startswith("L = ")
    assert re.search(r"arXiv:\d{4}\.\d{4,5}", text)
    assert objectives.registry.get(name)().name == name


def test_objectives_are_found_by_class_name() -> None:
    assert objectives.ALOE is ALOE
