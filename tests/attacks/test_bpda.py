"""The gradient comes back where a score cut it; the score stays what it was, to the last bit."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import hardtanh, softmax

from benchmarks.masks import FIRST
from benchmarks.masks.truth import build as mask
from benchmarks.masks.truth import digits, hidden, noise_of
from rood import detectors
from rood.attacks import PGD
from rood.attacks._bpda import among_fixed_images, straight_through
from rood.attacks.base import Goal, value_and_gradient
from rood.errors import CapabilityError
from rood.goals import look_in, look_out, misclassify
from rood.seeds import generator
from rood.testing._support import build, no_trace
from rood.threat import Linf


@pytest.fixture
def x():
    return torch.rand(3, 1, 2, 2, generator=generator(0))


def total(v):
    return v.flatten(1).sum(dim=1)


def cut_by_block(x):
    with torch.no_grad():
        return total(x)


@torch.inference_mode()
def cut_by_inference(x):
    return total(x)


def written_in_place(x):
    x = x.detach()
    x.mul_(8).round_().clamp_(min=2)
    return total(x) / 8


def own_gradient(x):
    """ODIN's way: a step along the sign of the score's gradient, by hand."""
    probe = x.detach().clone().requires_grad_()
    total(probe).sum().backward()
    return total(probe.detach() + 0.01 * probe.grad.data.sign())


def length_of_gradient(x):
    """A score that is a gradient: whoever wants its own differentiates twice."""
    probe = x.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad((probe**2).sum(), probe)
    return total(slope)


WIDE = torch.full((2, 2), 2.0)

# each with the gradient of the goal in every pixel, once it is let through
CUT = {
    "detach": (lambda x: total(x.detach()), 1),
    "data": (lambda x: total(x.data), 1),
    "no_grad": (cut_by_block, 1),
    "inference_mode": (cut_by_inference, 1),
    "misleading": (lambda x: total(2 * x.detach() - x), 1),
    "round": (lambda x: total((16 * x).round() / 16), 1),
    "floor": (lambda x: total(torch.floor(16 * x) / 16), 1),
    "whole numbers": (lambda x: total((255 * x).byte() / 255), 1),
    "sign": (lambda x: total((x - 0.5).sign()), 1),
    "clamp": (lambda x: total(x.clamp(0.4, 0.6)), 1),
    "a wider clamp": (lambda x: total(x.mean((2, 3), keepdim=True).clamp(min=WIDE)), 1),
    "in place": (written_in_place, 1),
    "above": (lambda x: total((x > 0.5).float()), 1),
    "levels below": (lambda x: (torch.arange(4) / 4 < total(x)[:, None]).sum(dim=1) / 4, 1),
    "not above": (lambda x: total(x <= 0.5).float(), -1),
    "chosen": (lambda x: total(torch.where(x > 0.5, 3.0, 1.0)), 2),
    "as whole numbers": (lambda x: total((x > 0.5).long() * 3).double(), 3),
    "box of a score": (lambda x: (total(x) - 9).relu() - (-9 - total(x)).relu(), 2),
    "hard tanh of a score": (lambda x: hardtanh(total(x) + 5), 1),
    "sigmoid of a score": (lambda x: (total(x) + 500).sigmoid(), 1),
    "its own gradient": (own_gradient, 1),
    "length of a gradient": (length_of_gradient, 2),
    "numpy on the side": (lambda x: total(x.detach()) + 0 * float(x.detach().numpy().max()), 1),
}


@pytest.mark.parametrize(("goal", "slope"), CUT.values(), ids=CUT)
def test_a_cut_gradient_is_let_through_and_values_stay(goal, slope, x):
    values, gradient = value_and_gradient(straight_through(goal), x)
    assert torch.equal(values, goal(x))
    assert torch.allclose(gradient, torch.full_like(x, slope))


@pytest.mark.parametrize(("goal", "slope"), CUT.values(), ids=CUT)
def test_each_of_these_gradients_was_hidden(goal, slope, x):
    try:
        _, gradient = value_and_gradient(goal, x)
    except (CapabilityError, RuntimeError):
        return
    assert not torch.allclose(gradient, torch.full_like(x, slope))


def test_what_has_a_gradient_keeps_it(x):
    def goal(x):
        z = (x.flatten(1) - 0.5).relu() + 0.1  # of many numbers an image: part of a network
        z[x.flatten(1) > 0.9] = 0.25
        chosen = torch.where(z > 0.2, z, 0 * z)
        return (chosen * z.cos()).sum(dim=1) + z.amax(dim=1)

    for own, through in zip(
        *(value_and_gradient(g, x) for g in (goal, straight_through(goal))), strict=True
    ):
        assert torch.equal(own, through)


def test_a_saturated_softmax_shows_which_way_to_go():
    logits = torch.tensor([[900.0, 100.0, 0.0, 100.0]]).view(1, 1, 2, 2)
    goal = lambda x: 1 - softmax(x.flatten(1), dim=1).amax(dim=1)
    assert not value_and_gradient(goal, logits)[1].any()
    values, gradient = value_and_gradient(straight_through(goal), logits)
    assert torch.equal(values, goal(logits))
    assert (gradient.flatten().sign() == torch.tensor([-1, 1, 1, 1])).all()


@pytest.mark.parametrize(
    "goal",
    [
        lambda x: torch.from_numpy(np.log(x.detach().numpy()).sum((1, 2, 3))),
        lambda x: torch.tensor(total(x).tolist()),
        lambda x: torch.zeros(len(x)),
    ],
    ids=["numpy", "list", "constant"],
)
def test_what_left_torch_has_no_gradient_and_says_so(goal, x):
    with pytest.raises(CapabilityError, match="use an attack without gradients"):
        value_and_gradient(straight_through(goal), x)
    assert torch.equal(
        straight_through(goal)(x), goal(x)
    )  # without a gradient it is the goal itself


class Flipped(torch.autograd.Function):
    """The identity, with a gradient that leads the other way."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Stepped(torch.autograd.Function):
    """A rounding without a gradient, in the newer form."""

    @staticmethod
    def forward(x):
        return (8 * x).round() / 8

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return torch.zeros_like(gradient)


def hooked(x):
    y = 2 * x
    if y.requires_grad:
        y.register_hook(lambda gradient: -gradient)
    return total(y) / 2


def hooked_module(x):
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda module, inputs, outputs: (-outputs[0],))
    return total(layer(x))


flip = Flipped.apply  # as the documentation of torch calls a Function


@pytest.mark.parametrize(
    "goal",
    [
        lambda x: total(flip(x)),
        lambda x: total(Stepped.apply(x)),
        lambda x: total(x.new_tensor(x.detach().numpy().round())),
        lambda x: total(torch.stack([torch.from_numpy(v.numpy().copy()) for v in x.detach()])),
        lambda x: total(x + 1e-6 * (1e8 * x).sin()),
        hooked,
        hooked_module,
    ],
    ids=["flip", "levels", "numpy", "image by image", "ripple", "hook", "module hook"],
)
def test_a_false_backward_pass_is_taken_for_the_identity(goal, x):
    with suppress(CapabilityError):  # cut off altogether
        assert not torch.allclose(value_and_gradient(goal, x)[1], torch.ones_like(x), atol=0.1)
    values, gradient = value_and_gradient(straight_through(goal), x)
    assert torch.equal(values, goal(x))
    torch.testing.assert_close(gradient, torch.ones_like(x), atol=0.01, rtol=0)


def test_a_score_that_cannot_run_so_is_a_capability_error(x):
    def goal(x):
        frozen = x.detach()
        frozen.requires_grad = False  # not while it carries a gradient
        return total(frozen)

    with pytest.raises(CapabilityError, match="straight-through gradients"):
        value_and_gradient(straight_through(goal), x)


def test_a_lack_of_memory_is_not_taken_for_a_lack_of_gradient(x):
    def goal(x):
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        value_and_gradient(straight_through(goal), x)


def test_statistics_that_a_score_keeps_stay_free_of_its_graph(x):
    running = nn.BatchNorm1d(4).running_mean
    rows = torch.zeros(2, 4)

    def goal(x):
        with torch.no_grad():
            running.mul_(0.9).add_(0.1 * x.flatten(1).mean(dim=0))
            rows[0].copy_(running)
        return (x.flatten(1) - running).sum(dim=1)

    value_and_gradient(straight_through(goal), x)
    assert not running.requires_grad
    assert not rows.requires_grad
    value_and_gradient(goal, x)


def test_an_uncut_goal_serves_some_of_the_images_too(world):
    x = world.inside[:6]
    wrong = straight_through(misclassify(world.model, torch.arange(6) % 3))
    index = torch.tensor([4, 1])
    assert torch.allclose(wrong.take(index)(x[index]), wrong(x)[index], atol=1e-5)
    cut = Goal(cut_by_block, rows=lambda index: Goal(cut_by_block))
    assert value_and_gradient(straight_through(cut).take(index), x[index])[1].any()
    marked = Goal(total, stochastic=True, enough=3.0, starts=(x,), variants=(Goal(total),))
    assert (straight_through(marked).stochastic, straight_through(marked).enough) == (True, 3.0)
    assert straight_through(marked).starts == (x,)
    assert straight_through(marked).variants == ()


# looked up in a histogram: an integer index lets no gradient through, only surrogates have one
LOOKED_UP = ("nac",)


@pytest.mark.parametrize("name", sorted({*detectors.registry.names()} - {*LOOKED_UP}))
def test_every_detector_keeps_its_score_and_its_state(name, world):
    detector = build(detectors.registry.get(name), world)
    x = world.inside[:5]
    want, before = value_and_gradient(look_in(detector), x)
    with no_trace("an uncut score", detector, x=x):
        values, gradient = value_and_gradient(straight_through(look_in(detector)), x)
    assert torch.equal(values, want)
    assert gradient.any()
    assert torch.equal(value_and_gradient(look_in(detector), x)[1], before)


@pytest.mark.parametrize("name", LOOKED_UP)
def test_a_score_that_is_looked_up_says_so_and_offers_surrogates(name, world):
    detector = build(detectors.registry.get(name), world)
    with pytest.raises(CapabilityError, match="straight-through"):
        value_and_gradient(straight_through(look_in(detector)), world.inside[:5])
    assert detector.gradient == "surrogate"
    for variant in look_in(detector).variants:
        assert value_and_gradient(variant, world.inside[:5])[1].any()


@pytest.fixture(scope="module")
def planted():
    images = digits(16)
    defences = {name: (mask(name, 16), hidden(name, 16)) for name in FIRST}
    return defences, images.inside, images.outside


@pytest.mark.parametrize(
    "name", ["saturated", "sign_cut", "quantised", "thermometer", "boxed", "noise_layer"]
)
def test_planted_masks_keep_their_value_and_get_a_gradient_that_leads(name, planted):
    defences, inside, outside = planted
    masked, honest = defences[name]
    for goal, truth, x in (
        (look_out(masked), look_out(honest), inside),
        (look_in(masked), look_in(honest), outside),
    ):
        with noise_of(0):
            want = goal(x)
        with noise_of(0):
            values, gradient = value_and_gradient(straight_through(goal), x)
        assert torch.equal(values, want)
        moved = (x + 0.02 * gradient.sign()).clamp(0, 1)
        with torch.no_grad():
            rose = truth(moved) > truth(x)
        assert rose.float().mean() > 0.8


def test_a_score_normalised_over_its_batch_is_climbed_in_company(planted):
    defences, inside, outside = planted
    masked, honest = defences["batch_normalised"]
    x, company = outside[:4], inside[:3]
    _, own = value_and_gradient(look_in(masked), x)
    _, true = value_and_gradient(look_in(honest), x)
    assert own.abs().max() < 1e-4 * true.abs().max()  # letting it through does not help
    goal = among_fixed_images(replace(look_in(masked), variants=(look_in(masked),)), company)
    alone = torch.stack([look_in(masked)(torch.cat([v[None], company]))[0] for v in x])
    assert torch.equal(goal(x), alone)
    assert torch.equal(goal.variants[0](x), alone)
    _, gradient = value_and_gradient(goal, x)
    along = torch.cosine_similarity(gradient.flatten(1), true.flatten(1))
    assert (along > 0.999).all()
    found = PGD(steps=5)(goal, x, Linf(0.1), generator(0))
    assert (look_in(honest)(found) > look_in(honest)(x)).all()
