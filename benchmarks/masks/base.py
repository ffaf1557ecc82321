"""What every masked defence has: a name, the network it is built on, and the detector it hides."""

import copy
import re
from typing import ClassVar

import torch
from torch import nn

from rood.detectors.base import Detector, OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.models.model import Model, Outputs
from rood.numerics.softmax import margin
from rood.seeds import generator
from rood.shapes import Images, Scores

EPS = 0.1  # of the Linf budget at which the gallery is attacked


class Mask(Detector):
    """A defence that makes an attack fail and protects nothing. Its docstring says how."""

    base: ClassVar[str] = "digits-ce"  # the network of the zoo below it

    @classmethod
    def label(cls) -> str:
        """The class name in snake case, by which the mask is listed."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def network(cls, model: Model) -> Model:
        """The network that is audited: `model`, or a copy with the mask inside."""
        return model

    @classmethod
    def hidden(cls, model: Model) -> Detector:
        """The detector without the mask, on the network without it."""
        return MSP(model)

    def know(self, inside: Images, outside: Images) -> None:
        """Store what a defence that has seen the test images stores; most have not."""

    def harmless(self, moved: Images, x: Images) -> Images:
        """Images near `moved`, within the budget around x, on which this mask has no effect."""
        return moved

    def twins(self) -> tuple[ScoreFunction, ...]:
        """Smooth versions of this very score, for an attacker who knows the mask."""
        return ()


class OutputMask(Mask, OutputDetector):
    """A mask that is a formula of logits and features."""


class HonestScore(OutputMask):
    """The margin: for masks that are in the network alone."""

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(out.logits)


def with_layer(model: Model, layer: nn.Module, at: int | None = None) -> Model:
    """A copy of the network with one more layer, at the end of its encoder or at index `at`."""
    model = copy.deepcopy(model)
    layers = model.net.layers
    layers.insert(len(layers) if at is None else at, layer.eval())
    return model


def smoothed(score: ScoreFunction, width: float, draws: int = 8) -> ScoreFunction:
    """The mean score over fixed points around x, `width` away in each pixel."""

    def mean(x: Images) -> Scores:
        around = torch.randn(draws, *x.shape[1:], generator=generator(0, "around"))
        return torch.stack([score(x + width * v.sign()) for v in around]).mean(dim=0)

    return mean
