"""Broken defences: networks that hide their gradient and protect nothing.

    rood audit --model examples.masked:rounded_pixels --eps 0.1

Athalye, Carlini and Wagner, *Obfuscated Gradients Give a False Sense of Security*, ICML 2018,
arXiv:1802.00420. docs/evidence/attack-strength.md audits 54 of them.
"""

from typing import Any

import torch
from torch import Tensor, nn

import rood
from rood.models.model import Model


class RoundedPixels(nn.Module):
    """Each pixel rounded to the levels 0, 0.2, ..., 1: no gradient comes through."""

    def forward(self, x: Tensor) -> Tensor:
        return (5 * x).round() / 5


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class TurnedGradient(nn.Module):
    """The image as it is, with a gradient that points the other way."""

    def forward(self, x: Tensor) -> Tensor:
        return _Turned.apply(x)


class Normalised(nn.Module):
    """(x - mean) / std, after the layer that sees plain pixels."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.mean, self.std = nn.Buffer(mean), nn.Buffer(std)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def _behind(layer: nn.Module) -> Model:
    """The demo network behind a layer."""
    model = rood.zoo.load("digits-ce")
    return rood.wrap(nn.Sequential(layer, Normalised(model.mean, model.std), model.net))


def rounded_pixels() -> Model:
    """Input quantisation."""
    return _behind(RoundedPixels())


def turned_gradient() -> Model:
    """A backward pass of its own that lies."""
    return _behind(TurnedGradient())
