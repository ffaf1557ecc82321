"""Any image classifier -> Model."""

from collections.abc import Sequence

import torch
from torch import nn

from rood.errors import CapabilityError, CheckpointError
from rood.models.model import Model
from rood.registry import unknown


def wrap(
    net: nn.Module,
    *,
    head: str | None = None,  # dotted name of the last linear layer; found by itself if None
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> Model:
    """A `Model` of an ordinary classifier: eval mode, parameters frozen, pixels in [0, 1] outside.

    The last linear layer is taken for the head and its input for the features; the first images
    that pass through confirm it, or find the linear layer whose output really is the logits.
    """
    linear = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear)}
    if not linear:
        raise CapabilityError(
            f"expected a classifier with a linear head, found no linear layer in "
            f"{type(net).__name__}: end it in nn.Linear, or take rood.models.logits_only, which "
            "serves detectors of the logits alone"
        )
    if head is not None and head not in linear:
        raise unknown("linear layer", head, linear)
    check_weights(net)
    net.eval().requires_grad_(False)
    model = Model(net, linear[head or list(linear)[-1]], mean, std, sure=head is not None)
    return model.eval().requires_grad_(False)


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
