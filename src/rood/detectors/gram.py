"""Deviation of the feature maps' Gram matrices from their range on training images."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.errors import CapabilityError, InputError
from rood.models.model import Model, Outputs
from rood.numerics.softmax import margin
from rood.numerics.streaming import Sample
from rood.seeds import row_keys
from rood.shapes import Images, Labels, Scores

TINY = 1e-300  # keeps the gradient of the q-th root finite at 0 without changing a float64
HELD_OUT = 10  # one training image in ten sets the scale of a layer, not its bounds


class Gram(OutputDetector):
    r"""s(x) = (1 / max p) sum_l d_l(x) / E[d_l / max p], d_l the deviation of layer l.

    For each order q the row sums of F^q (F^q)', to the power 1/q, are compared with their least and
    greatest value over training images predicted as the same class: d_l sums how far they lie
    outside, relative to the bound. Sastry & Oore, *Detecting Out-of-Distribution Examples with Gram
    Matrices*, ICML 2020, arXiv:1912.12510. The expectation is over held-out training images. Inside
    the bounds d_l is flat, so an attacker climbs a smooth surrogate.
    """

    gradient = "surrogate"

    low_: Float[Tensor, "k s"]  # s: statistics of all layers and orders, side by side
    high_: Float[Tensor, "k s"]
    weight_: Float[Tensor, " s"]  # 1 / E[d_l] for the layer of each statistic

    def __init__(
        self,
        model: Model,
        *,
        orders: int = 5,
        layers: tuple[str, ...] | None = None,  # None: every convolution, every ReLU module
    ) -> None:
        super().__init__(model)
        if orders < 1:
            raise InputError(f"expected orders >= 1, got {orders}")
        self.orders = orders
        self.layers = layers
        self.taps = layers or _default_layers(model)

    def start(self) -> None:
        self._low: Tensor | None = None
        self._high = torch.empty(self.model.classes, 0)
        self._held = Sample(1000)
        self._sizes: list[int] = []

    def see(self, out: Outputs, labels: Labels) -> None:
        stats = self.statistics(out.maps)
        self._sizes = [self.orders * m.shape[1] for m in out.maps]
        predicted = out.logits.argmax(dim=1)
        keys = row_keys(out.features) if out.keys is None else out.keys
        held = keys % HELD_OUT == 0
        extra = torch.stack([predicted.double(), _log_inverse_top(out).double()], dim=1)
        self._held.see(torch.cat([stats, extra], dim=1)[held], keys[held])
        self.widen(stats[~held], stats[~held], predicted[~held])

    def widen(self, low: Float[Tensor, "b s"], high: Float[Tensor, "b s"], classes: Labels) -> None:
        """Extend the bounds of each image's class to that image's values."""
        if self._low is None:
            self._low = low.new_full((self.model.classes, low.shape[1]), torch.inf)
            self._high = -self._low
        place = classes[:, None].expand_as(low)
        self._low.scatter_reduce_(0, place, low, "amin")
        self._high.scatter_reduce_(0, place, high, "amax")

    def finish(self) -> None:
        assert self._low is not None
        rows = self._held.rows()
        if len(rows) == 0 or not self._low.isfinite().any():
            raise InputError(
                f"expected enough training images to hold out one in {HELD_OUT} for Gram's scale, "
                "got too few: give more"
            )
        self.settle_bounds()
        self.weight_ = self._weights(rows)
        del self._held, self._sizes

    def settle_bounds(self) -> None:
        """Set `low_` and `high_`; a class without images gets the range of all classes."""
        assert self._low is not None
        never = ~self._low.isfinite()
        self.low_ = torch.where(never, self._low.amin(dim=0).expand_as(self._low), self._low)
        self.high_ = torch.where(never, self._high.amax(dim=0).expand_as(self._high), self._high)
        del self._low, self._high

    def _weights(self, held: Float[Tensor, "n s2"]) -> Float[Tensor, " s"]:
        """1 / E[d_l] of each statistic's layer, from what `see` kept of the held-out images."""
        stats, predicted, log_scale = held[:, :-2], held[:, -2].long(), held[:, -1]
        deviation = _deviation(stats, self.low_[predicted], self.high_[predicted])
        deviation = deviation * log_scale.exp()[:, None]
        layers = torch.stack([d.sum(dim=1).mean() for d in deviation.split(self._sizes, dim=1)])
        sizes = torch.tensor(self._sizes, device=layers.device)
        return (1 / (layers + 1e-7)).repeat_interleave(sizes)

    def score_outputs(self, out: Outputs) -> Scores:
        return self.deviation(out) * _log_inverse_top(out).double().exp()

    def deviation(self, out: Outputs) -> Scores:
        """sum_l d_l / E[d_l], in float64."""
        y = out.logits.argmax(dim=1)
        return _deviation(self.statistics(out.maps), self.low_[y], self.high_[y]) @ self.weight_

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """Soft margins: exact outside the bounds, and inside a slope to the nearest bound."""

        def soft(x: Images) -> Scores:
            out = self.model(x, self.taps)
            y = out.logits.argmax(dim=1)
            low, high = self.low_[y], self.high_[y]
            v = self.statistics(out.maps)
            width = (high - low) / 4 + 1e-6
            above = softplus((v - high) / width) * width / (high + 1e-6).abs()
            below = softplus((low - v) / width) * width / (low + 1e-6).abs()
            return ((above + below) @ self.weight_).log().to(x.dtype)

        return (soft,)

    def statistics(self, maps: tuple[Tensor, ...]) -> Float[Tensor, "b s"]:
        """The row sums of every layer and order side by side, in float64."""
        return torch.cat(self.row_sums(maps), dim=1)

    def row_sums(self, maps: tuple[Tensor, ...]) -> list[Float[Tensor, "b _"]]:
        """The signed q-th roots of the Gram matrices' row sums, for every layer and order."""
        return [_row_sums(m, q) for m in maps for q in range(1, self.orders + 1)]


def _row_sums(maps: Tensor, q: int) -> Float[Tensor, "b c"]:
    f = maps.double()[..., None].flatten(2)  # (b, c, hw); (b, c, 1) behind a linear layer
    top = (
        f.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)
    )  # factored out: f^q would overflow
    powered = (f / top) ** q
    g = (powered * powered.sum(dim=1, keepdim=True)).sum(dim=2)  # row sums of F^q (F^q)'
    return g.sign() * (g.abs() + TINY) ** (1 / q) * top.squeeze(2) ** 2


def _deviation(v: Tensor, low: Tensor, high: Tensor) -> Tensor:
    below = (low - v).clamp_min(0) / (low + 1e-6).abs()
    return below + (v - high).clamp_min(0) / (high + 1e-6).abs()


def _log_inverse_top(out: Outputs) -> Scores:
    """-log max p = log(1 + e^m)."""
    return softplus(margin(out.logits))


def _default_layers(model: Model) -> tuple[str, ...]:
    kinds = (nn.Conv2d, nn.ReLU)
    layers = tuple(n for n, m in model.net.named_modules() if isinstance(m, kinds))
    if not layers:
        raise CapabilityError("expected a network with convolutions for Gram, found none")
    return layers
