"""A network of which nothing but the logits can be had: what it serves, and what it cannot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rood.errors import CapabilityError
from rood.models.model import Model, Outputs, logits_of
from rood.models.wrap import wrap
from rood.shapes import Images


def logits_only(
    net: nn.Module,
    classes: int,
    *,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> Model:
    """A `Model` whose features are its logits, for networks without a linear head in sight.

    Detectors of the logits (MSP, energy, entropy, GEN, ODIN, PRO, ...) are as good on it as on any
    other; those of features and head (KNN, Mahalanobis, ViM, ReAct, ...) are other methods here.
    """
    return wrap(_LogitsOnly(net, classes), head="head", mean=mean, std=std)


@contextmanager
def without_features(model: Model) -> Iterator[None]:
    """While the block runs, whoever reads the features of `model` is told that there are none."""

    def hide(_: nn.Module, __: Any, out: Outputs) -> Outputs:
        return _NoFeatures(*out)

    handle = model.register_forward_hook(hide)
    try:
        yield
    finally:
        handle.remove()


def like_of(net: nn.Module) -> Tensor:
    """A tensor of the network's dtype, where the network is."""
    return next((p for p in net.parameters() if p.is_floating_point()), torch.empty(0))


class _NoFeatures(Outputs):
    @property
    def features(self) -> Tensor:
        raise CapabilityError("expected a network with features, got one that gives logits alone")


class _LogitsOnly(nn.Module):
    def __init__(self, net: nn.Module, classes: int) -> None:
        super().__init__()
        self.net = net
        like = like_of(net)
        self.head = nn.Linear(classes, classes, device=like.device, dtype=like.dtype)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(classes))
            self.head.bias.zero_()

    def forward(self, x: Images) -> Tensor:
        return self.head(logits_of(self.net(x)))
