"""Robust objectives and those with outliers against slow, plain formulas, inner attack included."""

import math
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from toy_objectives import ATTACK, batch, drawn, in_training

from rood.models.model import Model
from rood.models.scored import scored
from rood.seeds import Noise
from rood.training import objectives
from rood.training.objectives import Batch, Objective
from rood.training.objectives.adv import ADV
from rood.training.objectives.aloe import ALOE
from rood.training.objectives.aoe import AOE
from rood.training.objectives.atom import ATOM
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.objectives.energy_oe import EnergyOE
from rood.training.objectives.joint import Joint
from rood.training.objectives.oe import OE
from rood.training.objectives.trades import TRADES


def numbers(model: Model, x: Tensor) -> Tensor:
    """The logits; where there is a scalar head, what it says after them."""
    out = model(x)
    return out.logits if out.head is None else torch.cat([out.logits, out.head[:, None]], 1)


def logits(model: Model, x: Tensor) -> list[list[float]]:
    return numbers(model, x).tolist()


def softmax(z: Iterable[float]) -> list[float]:
    powers = [math.exp(v) for v in z]
    return [p / sum(powers) for p in powers]


def nll(z: list[float], y: int) -> float:
    return -math.log(softmax(z)[y])


def to_uniform(z: list[float]) -> float:
    return -sum(math.log(p) for p in softmax(z)) / len(z)


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def searched(
    model: Model, x: Tensor, losses: Callable[[Tensor, int], Tensor], start: Tensor
) -> Tensor:
    """The inner attack by hand: one image after the other, sign steps, cut to ball and box."""
    model.eval()
    found = []
    for i in range(len(x)):
        at = start[i : i + 1]
        for _ in range(ATTACK["steps"]):
            at = at.detach().requires_grad_()
            (slope,) = torch.autograd.grad(losses(numbers(model, at)[0], i), at)
            near = (at + ATTACK["step"] * slope.sign()).detach() - x[i : i + 1]
            at = (x[i : i + 1] + near.clamp(-ATTACK["eps"], ATTACK["eps"])).clamp(0, 1)
        found.append(at)
    model.train()
    return torch.cat(found)


def starts(x: Tensor, generator: torch.Generator) -> Tensor:
    noise = ATTACK["eps"] * (2 * Noise(x, generator).uniform() - 1)
    return (x + noise.clamp(-ATTACK["eps"], ATTACK["eps"])).clamp(0, 1)


def confused(y: Tensor) -> Callable[[Tensor, int], Tensor]:
    return lambda z, i: cross_entropy(z[None], y[i : i + 1])


def confident(z: Tensor, i: int) -> Tensor:
    return torch.logsumexp(z, 0) - z.mean()


def attacked_images(model: Model, given: Batch) -> Tensor:
    return searched(model, given.x, confused(given.y), starts(given.x, drawn(0)))


def adv_by_hand(model: Model, given: Batch) -> float:
    z = logits(model, attacked_images(model, given))
    return mean(map(nll, z, given.y.tolist()))


def oe_by_hand(model: Model, given: Batch) -> float:
    assert given.outliers is not None
    z = logits(model, torch.cat([given.x, given.outliers]))
    n = len(given.x)
    return mean(map(nll, z[:n], given.y.tolist())) + 0.5 * mean(map(to_uniform, z[n:]))


def aoe_by_hand(model: Model, given: Batch) -> float:
    return oe_by_hand(model, given._replace(x=attacked_images(model, given)))


def aloe_by_hand(model: Model, given: Batch) -> float:
    assert given.outliers is not None
    both, n = torch.cat([given.x, given.outliers]), len(given.x)
    begin = starts(both, drawn(0))
    x = searched(model, given.x, confused(given.y), begin[:n])
    o = searched(model, given.outliers, confident, begin[n:])
    return oe_by_hand(model, given._replace(x=x, outliers=o))


def trades_by_hand(model: Model, given: Batch) -> float:
    model.eval()
    clean = [softmax(z) for z in logits(model, given.x)]
    model.train()

    def far(z: Tensor, i: int) -> Tensor:
        log_q = z.log_softmax(0)
        return sum(p * (math.log(p) - log_q[k]) for k, p in enumerate(clean[i]))  # type: ignore[return-value]

    worst = searched(model, given.x, far, starts(given.x, drawn(0)))
    z, n = logits(model, torch.cat([given.x, worst])), len(given.x)
    pairs = [(softmax(a), softmax(b)) for a, b in zip(z[:n], z[n:], strict=True)]
    apart = [
        sum(p * math.log(p / q) for p, q in zip(one, other, strict=True)) for one, other in pairs
    ]
    return mean(map(nll, z[:n], given.y.tolist())) + 6 * mean(apart)


def energy_oe_by_hand(model: Model, given: Batch) -> float:
    assert given.outliers is not None
    z, n = logits(model, torch.cat([given.x, given.outliers])), len(given.x)
    energy = [-math.log(sum(math.exp(v) for v in row)) for row in z]
    inside = [max(0.0, e + 2) ** 2 for e in energy[:n]]
    outside = [max(0.0, -1 - e) ** 2 for e in energy[n:]]
    assert min(inside) == 0 < max(inside)
    assert min(outside) == 0 < max(outside)
    return mean(map(nll, z[:n], given.y.tolist())) + 0.3 * (mean(inside) + mean(outside))


def atom_by_hand(model: Model, given: Batch) -> float:
    """With a further class, written out: the last of k + 1 whose logit is 0."""
    assert given.outliers is not None
    model.eval()
    seen = [softmax([*z, 0.0])[3] for z in logits(model, given.outliers)]
    model.train()
    hardest = sorted(range(16), key=lambda i: seen[i])[2:6]  # an eighth passed over, a quarter kept
    mined = given.outliers[hardest]
    last = lambda z, i: -torch.cat([z, z.new_zeros(1)]).log_softmax(0)[3]
    worst = searched(model, mined, last, starts(mined, drawn(0)))
    z, n = logits(model, torch.cat([given.x, worst])), len(given.x)
    images = [nll([*row, 0.0], y) for row, y in zip(z[:n], given.y.tolist(), strict=True)]
    return mean(images) + mean(nll([*row, 0.0], 3) for row in z[n:])


def joint_by_hand(model: Model, given: Batch) -> float:
    """The first half of the images is pushed out of its class, the other half out by the head."""
    assert given.outliers is not None
    both, n, half = torch.cat([given.x, given.outliers]), len(given.x), len(given.x) // 2

    def lost(z: Tensor, i: int) -> Tensor:
        return cross_entropy(z[None, :3], given.y[i : i + 1]) if i < half else z[3]

    begin = starts(both, drawn(0))
    x = searched(model, given.x, lost, begin[:n])
    o = searched(model, given.outliers, lambda z, i: -z[3], begin[n:])
    z = logits(model, torch.cat([x, o]))
    classes = mean(nll(row[:3], y) for row, y in zip(z[:n], given.y.tolist(), strict=True))
    inside = mean(math.log(1 + math.exp(row[3])) for row in z[:n])
    return classes + inside + 0.7 * mean(math.log(1 + math.exp(-row[3])) for row in z[n:])


BY_HAND: list[tuple[Objective, Callable[[Model, Batch], float]]] = [
    (ADV(**ATTACK), adv_by_hand),
    (OE(), oe_by_hand),
    (AOE(**ATTACK), aoe_by_hand),
    (ALOE(**ATTACK), aloe_by_hand),
    (TRADES(**ATTACK), trades_by_hand),
    (EnergyOE(weight=0.3, m_in=-2, m_out=-1), energy_oe_by_hand),
    (ATOM(**ATTACK), atom_by_hand),
    (Joint(weight=0.7, **ATTACK), joint_by_hand),
]


def trained_by(objective: Objective) -> Model:
    model = in_training()
    return scored(model).train().requires_grad_() if objective.name == "joint" else model


@pytest.mark.parametrize(("objective", "by_hand"), BY_HAND, ids=lambda v: getattr(v, "name", ""))
def test_the_loss_is_the_formula_written_out(
    objective: Objective, by_hand: Callable[[Model, Batch], float]
) -> None:
    loss = objective.loss(trained_by(objective), batch(), drawn(0)).item()
    assert loss == pytest.approx(by_hand(trained_by(objective), batch()), rel=2e-4)


def test_every_objective_has_its_formula_written_out() -> None:
    elsewhere = {"cross_entropy", "likelihood", "reconstruction"}  # beside their networks
    elsewhere |= {"calibrated", "ccu", "deep_ensemble", "jem"}  # in test_references_trained
    elsewhere |= {"certified_head"}  # in test_certified_head
    assert {o.name for o, _ in BY_HAND} | elsewhere == set(objectives.registry.names())


def test_label_smoothing_shares_the_label_out() -> None:
    model, given = in_training(), batch()
    loss = CrossEntropy(smoothing=0.3).loss(model, given, drawn(0)).item()
    z = logits(model, given.x)
    own, even = mean(map(nll, z, given.y.tolist())), mean(map(to_uniform, z))
    assert loss == pytest.approx(0.7 * own + 0.3 * even, rel=1e-5)
