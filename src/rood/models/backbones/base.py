"""What every architecture offers: images to logits, and the settings that rebuild it."""

import inspect
import math
from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Generator, Tensor, nn

from rood.errors import CapabilityError, InputError
from rood.shapes import Images, Logits


class Backbone(nn.Module, ABC):
    """A classifier that ends in one linear layer.

    Its constructor takes keyword arguments alone and keeps each one in an attribute of that name.
    """

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__()
        if classes < 2 or channels < 1:
            raise InputError(f"expected classes >= 2 and channels >= 1, got {classes}, {channels}")
        self.classes = classes
        self.channels = channels

    @abstractmethod
    def forward(self, x: Images) -> Logits:
        """Logits of normalised images."""

    @property
    def name(self) -> str:
        """Its registry name: the file it lives in."""
        return type(self).__module__.rpartition(".")[2]

    @final
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, which JSON can hold."""
        parameters = inspect.signature(type(self).__init__).parameters.values()
        return {p.name: getattr(self, p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}

    @final
    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """Set every weight and statistic: He for convolutions, LeCun for linear layers."""
        written: set[int] = set()
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
            elif isinstance(layer, nn.Linear):
                bound = 1 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=generator)
            elif isinstance(layer, nn.BatchNorm2d):
                layer.reset_parameters()
            else:
                continue
            if getattr(layer, "bias", None) is not None:
                layer.bias.zero_()  # type: ignore[union-attr]
            written.update(map(id, _own(layer)))
        if left := [n for n, t in self.state_dict(keep_vars=True).items() if id(t) not in written]:
            raise CapabilityError(f"no initial value is known for {', '.join(left)}")


def _own(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
