"""Any image classifier -> Model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rood.errors import CapabilityError, CheckpointError, InputError
from rood.models.model import Model, Outputs, logits_of
from rood.registry import unknown
from rood.shapes import Images


def wrap(
    net: nn.Module,
    *,
    head: str | None = None,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> Model:
    """Make a `Model` of a classifier: pixels in [0, 1] in, logits and features out.

    The network is put into eval mode and its parameters are frozen. The last linear layer is
    taken as the head and its input as the features; the first batch confirms the choice, or
    replaces it with the linear layer whose output equals the logits.

    Parameters
    ----------
    net : torch.nn.Module
        A classifier that returns logits of shape (b, k) for normalised images.
    head : str, optional
        Dotted name of the last linear layer. Found automatically by default.
    mean, std : sequence of float
        Per-channel normalisation of pixels in [0, 1]. It becomes part of the model, so that every
        eps is in pixel units.

    Returns
    -------
    Model
        Call it with images (b, c, h, w) in [0, 1] to get `Outputs`.

    Raises
    ------
    CapabilityError
        If there is no linear layer, or weights are in half precision or on several devices.
    CheckpointError
        If a weight is NaN or infinite.
    UnknownNameError
        If no linear layer is called `head`.

    Examples
    --------
    >>> import rood, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, 4))
    >>> model = rood.wrap(net, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    >>> outputs = model(torch.rand(2, 3, 8, 8))
    >>> outputs.logits.shape, outputs.features.shape
    (torch.Size([2, 4]), torch.Size([2, 16]))
    """
    if not isinstance(net, nn.Module):
        raise InputError(
            f"expected a torch.nn.Module to wrap, got {type(net).__name__}: rood.zoo.load and "
            "rood.models.load.load_network take names"
        )
    linear = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear)}
    if not linear:
        raise CapabilityError(
            f"expected a classifier with a linear head, found no linear layer in "
            f"{type(net).__name__}: end it in nn.Linear, or use rood.models.wrap.logits_only, "
            "which serves detectors that read logits only"
        )
    if head is not None and head not in linear:
        raise unknown("linear layer", head, linear)
    check_weights(net)
    net.eval().requires_grad_(False)
    model = Model(net, linear[head or list(linear)[-1]], mean, std, sure=head is not None)
    return model.eval().requires_grad_(False)


def logits_only(
    net: nn.Module,
    classes: int,
    *,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> Model:
    """Make a `Model` whose features are its logits, for a network without a linear head.

    Detectors that read logits (MSP, energy, entropy, GEN, ODIN, PRO, ...) work as on any other
    model; those that read features or the head (KNN, Mahalanobis, ViM, ReAct, ...) compute
    something else than their papers on it.
    """
    return wrap(_LogitsOnly(net, classes), head="head", mean=mean, std=std)


@contextmanager
def without_features(model: Model) -> Iterator[None]:
    """Make every read of the features of `model` inside the block a `CapabilityError`."""

    def hide(_: nn.Module, __: Any, out: Outputs) -> Outputs:
        return _NoFeatures(*out)

    handle = model.register_forward_hook(hide)
    try:
        yield
    finally:
        handle.remove()


def check_weights(net: nn.Module) -> None:
    """Refuse weights that cannot be attacked: half precision, several devices, not finite."""
    devices = {p.device for p in net.parameters()}
    if len(devices) > 1 or any(d.type == "meta" for d in devices):
        named = ", ".join(sorted(map(str, devices)))
        raise CapabilityError(f"expected all weights on one device, got {named}: move the network")
    for name, p in net.named_parameters():
        if p.dtype not in (torch.float32, torch.float64):
            raise CapabilityError(
                f"expected float32 or float64 weights, got {p.dtype} in {name!r}: "
                "call .float() first, gradients of scores die in half precision"
            )
        if not p.isfinite().all():
            raise CheckpointError(f"expected finite weights, got NaN or infinity in {name!r}")


def like_of(net: nn.Module) -> Tensor:
    """A tensor of the network's dtype on the network's device."""
    return next((p for p in net.parameters() if p.is_floating_point()), torch.empty(0))


class _NoFeatures(Outputs):
    @property
    def features(self) -> Tensor:
        raise CapabilityError("expected a network with features, got one that returns logits only")


class _LogitsOnly(nn.Module):
    """A network followed by an identity linear layer as its head."""

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
