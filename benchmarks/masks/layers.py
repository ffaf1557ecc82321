"""Masks inside the network: the score is the plain margin, one layer is not what it seems."""

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.masks.base import HonestScore, smoothed, with_layer
from rood.detectors.base import ScoreFunction
from rood.models.model import Model
from rood.seeds import generator

MIDDLE = 3  # after the first block


class _Layer(nn.Module):
    """A layer that is a function of one tensor."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class _Flipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class _Levels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (20 * x).round() / 20

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.zeros_like(gradient)


class _Shuffled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        order = torch.randperm(gradient[0].numel(), generator=generator(0, "mask"))
        return gradient.flatten(1)[:, order].view_as(gradient)


class _Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.randn(gradient.shape, generator=generator(0, "mask")).to(gradient)


class Ripple(HonestScore):
    """A ripple of 4e-6 on every pixel, steep enough to make the gradient noise."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(lambda x: x + 4e-6 * (1e8 * x).sin()), at=0)


class Flip(HonestScore):
    """A custom function in the middle of the network that negates the gradient."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(_Flipped.apply), at=MIDDLE)


class ZeroBackward(HonestScore):
    """A quantiser in the middle of the network, written as a custom function without gradient."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(_Levels.apply), at=MIDDLE)


class WrongBackward(HonestScore):
    """A custom function on the features whose gradient belongs to other features."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(_Shuffled.apply))


class BackwardHook(HonestScore):
    """A full backward hook on the first convolution that negates the gradient."""

    @classmethod
    def network(cls, model: Model) -> Model:
        model = with_layer(model, nn.Identity(), at=0)
        model.net.layers[0].register_full_backward_hook(lambda _, grads, __: (-grads[0],))
        return model


class Kwta(HonestScore):
    """k-WTA: only the largest tenth of the activations of the first two blocks is kept."""

    @classmethod
    def network(cls, model: Model) -> Model:
        def winners(x: Tensor) -> Tensor:
            flat = x.flatten(1)
            least = flat.topk(max(1, flat.shape[1] // 10), dim=1).values[:, -1:]
            return (flat * (flat >= least)).view_as(x)

        model = with_layer(model, _Layer(winners), at=6)
        return with_layer(model, _Layer(winners), at=MIDDLE)

    def twins(self) -> tuple[ScoreFunction, ...]:
        return tuple(smoothed(self.score_images, width) for width in (0.01, 0.04))


class WholeFeatures(HonestScore):
    """Features are rounded down to whole numbers: no gradient reaches the network."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(lambda f: f.floor()))


class RobustFlip(Flip):
    """`flip` in the robust demo network, which then seems perfectly robust."""

    base = "digits-aloe"


class RandomBackward(HonestScore):
    """A custom function on the pixels that returns noise in place of the gradient."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(_Noise.apply), at=0)


class BorderGradient(HonestScore):
    """Gradient only in the outer frame of the image, where there is nothing to change."""

    @classmethod
    def network(cls, model: Model) -> Model:
        def framed(x: Tensor) -> Tensor:
            frame = torch.ones_like(x)
            frame[..., 3:-3, 3:-3] = 0
            return frame * x + ((1 - frame) * x).detach()

        return with_layer(model, _Layer(framed), at=0)


class NumpyDetour(HonestScore):
    """The features pass through NumPy on their way to the head: no gradient at all."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(lambda f: torch.from_numpy(f.detach().cpu().numpy()).to(f)))


class FineRounding(HonestScore):
    """Pixels rounded to a thousandth: no effect on the value, and no gradient."""

    @classmethod
    def network(cls, model: Model) -> Model:
        return with_layer(model, _Layer(lambda x: (1000 * x).round() / 1000), at=0)
