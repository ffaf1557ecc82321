"""Faults that make bounds unsound, planted one at a time, and what catches each."""

import dataclasses

import torch
from escapes import any_escape, of_layer
from tiny_nets import images, tiny
from torch.nn import functional

from rood.certify.layers import (
    _bowl,
    add,
    average_pool,
    base,
    convolution,
    linear,
    max_pool,
    relu,
    rescale,
    silu,
)
from rood.certify.region import Region
from rood.errors import CapabilityError
from rood.numerics import softmax
from rood.numerics.box import Box


def found(search):
    """What a search finds; `trace`, which compares operations with the network, finds too."""
    try:
        return search()
    except CapabilityError as e:
        return float("whose operations give its outputs" in str(e))


def network(name):
    """Points of a tiny network leave their bounds, or its operations no longer give its outputs."""
    return lambda: any_escape(tiny(name), images(3))


def layer(of, low, high):
    """Outputs of a layer leave its interval or its lines."""
    ends = [torch.tensor([[v]], dtype=torch.float64) for v in (low, high)]
    return lambda: of_layer(of, Box(*ends))


def in_float32():
    """Bounds in float32 miss what float64 finds: only the margin for rounding covers it."""
    weight = 100 * torch.randn(50, 400, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 400, generator=torch.Generator().manual_seed(1))
    found = linear.Linear(weight, None).over(Box(x, x))
    exact = x.double() @ weight.double().T
    return float(torch.maximum(found.low - exact, exact - found.high).max())


def no_margin(patch):
    patch.setattr(base, "rounding", lambda *_: 0.0)


def chord_of_half_the_slope(patch):
    true = relu.ReLU.lines

    def lines(self, b):
        found = true(self, b)
        return found._replace(high_slope=found.high_slope / 2)

    patch.setattr(relu.ReLU, "lines", lines)


def chord_without_offset(patch):
    true = relu.ReLU.lines
    patch.setattr(
        relu.ReLU, "lines", lambda s, b: true(s, b)._replace(high_offset=torch.zeros_like(b.low))
    )


def lower_slope_of_an_active_unit_for_all(patch):
    """Steeper than 1 below: the line crosses the curve where x is positive."""
    true = relu.ReLU.lines
    patch.setattr(
        relu.ReLU, "lines", lambda s, b: true(s, b)._replace(low_slope=true(s, b).low_slope + 0.3)
    )


def leak_forgotten(patch):
    true = relu.ReLU.lines

    def lines(self, b):
        return true(dataclasses.replace(self, leak=0.0), b)

    patch.setattr(relu.ReLU, "lines", lines)


def weights_not_split_by_sign(patch):
    patch.setattr(linear.Linear, "mapped", lambda self, f: self)


def coefficients_not_split_by_sign(patch):
    """Every entry is bounded from below, also where its coefficient is negative."""

    def pull(self, a, owner):
        low_slope, low_offset, *_ = (base.pick(v, owner) for v in self.lines)
        offset = (a * low_offset).flatten(1).sum(dim=1)
        return base.Pulled((a * low_slope,), offset, torch.zeros_like(offset))

    patch.setattr(base.Between, "pull", pull)


def silu_without_its_right_side(patch):
    """The tangent above x > c forgotten: only ends and the left side count."""
    true = _bowl.Bowl._extreme

    def extreme(self, k, start, end, sign):
        found = true(self, k, start, end, sign)
        return found if sign > 0 else torch.full_like(found, -torch.inf)

    patch.setattr(_bowl.Bowl, "_extreme", extreme)


def smooth_minimum_forgotten(patch):
    patch.setattr(silu.SiLU, "least", 0.0)


def residual_forgotten(patch):
    patch.setattr(add.Add, "adjoint", lambda self, a: (a, torch.zeros_like(a)))


def paths_overwrite_each_other(patch):
    """What reaches a map along two paths replaces instead of adding up."""
    true = add.Add.adjoint
    patch.setattr(add.Add, "adjoint", lambda self, a: (true(self, a)[0] * 0, true(self, a)[1]))


def batch_norm_factor_lost(patch):
    true = convolution.Convolution.followed
    patch.setattr(
        convolution.Convolution,
        "followed",
        lambda self, factor, shift: true(self, torch.ones_like(factor), shift),
    )


def dual_norm_of_linf_is_two(patch):
    true = Region.least

    def least(self, a, owner):
        if self.radius is not None:
            return true(self, a, owner)
        length = (a.flatten(1) * base.pick(self.box.radius, owner).flatten(1)).norm(dim=1)
        return base.dot(a, self.box.centre, owner) - length

    patch.setattr(Region, "least", least)


def half_of_the_l2_ball(patch):
    true = Region.around.__func__

    def around(cls, x, threat, dtype):
        found = true(cls, x, threat, dtype)
        radius = found.radius
        return found if radius is None else dataclasses.replace(found, radius=radius / 2)

    patch.setattr(Region, "around", classmethod(around))


def pool_takes_its_favourite_for_the_maximum(patch):
    true = max_pool.MaxPool.relaxed

    def relaxed(self, *boxes):
        found = true(self, *boxes)
        return dataclasses.replace(found, exact=torch.ones_like(found.exact))

    patch.setattr(max_pool.MaxPool, "relaxed", relaxed)


def sum_pulled_back_for_a_mean(patch):
    true = average_pool.AveragePool.adjoint
    patch.setattr(
        average_pool.AveragePool, "adjoint", lambda s, a: tuple(2 * v for v in true(s, a))
    )


def kernel_flipped(patch):
    true = functional.conv_transpose2d
    flipped = lambda a, w, *more: true(a, w.flip(2, 3), *more)
    patch.setattr(convolution.functional, "conv_transpose2d", flipped)


def slopes_beyond_their_range(patch):
    """`alpha` may then choose lower lines that cut the curve."""
    true = relu.ReLU.freedom
    patch.setattr(relu.ReLU, "freedom", lambda s, b: Box(true(s, b).low - 1, true(s, b).high + 1))


def shift_of_a_scale_lost(patch):
    nothing = lambda self: torch.zeros_like(self.shift).expand(1, *self.shape)
    patch.setattr(rescale.Rescale, "bias", nothing)


def margin_of_the_wrong_class(patch):
    """The largest odds instead of the least: another class than the predicted one."""

    def margin(gaps, temperature=1.0):
        low, high = softmax.odds_within(gaps, temperature)
        return Box(low.amax(dim=1), high.amax(dim=1))

    patch.setattr("rood.detectors.msp.margin_within", margin)


FAULTS = [
    (no_margin, in_float32),
    (chord_of_half_the_slope, network("mlp")),
    (chord_without_offset, network("mlp")),
    (lower_slope_of_an_active_unit_for_all, network("strides")),
    (leak_forgotten, layer(relu.ReLU(0.2), -3.0, 1.0)),
    (weights_not_split_by_sign, network("mlp")),
    (coefficients_not_split_by_sign, network("residual")),
    (silu_without_its_right_side, layer(silu.SiLU(), 1.0, 9.0)),
    (smooth_minimum_forgotten, layer(silu.SiLU(), -4.0, 1.0)),
    (residual_forgotten, network("residual")),
    (paths_overwrite_each_other, network("residual")),
    (batch_norm_factor_lost, network("strides")),
    (dual_norm_of_linf_is_two, network("residual")),
    (half_of_the_l2_ball, network("mlp")),
    (pool_takes_its_favourite_for_the_maximum, network("pools")),
    (sum_pulled_back_for_a_mean, network("residual")),
    (kernel_flipped, network("dense")),
    (slopes_beyond_their_range, network("mlp")),
    (shift_of_a_scale_lost, network("sums")),
    (margin_of_the_wrong_class, network("mlp")),
]
