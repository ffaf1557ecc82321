"""TorchScript files: logits and their gradient, but no features."""

import warnings
from pathlib import Path

import torch

from rood.errors import CheckpointError, InputError
from rood.models.sources.base import ForeignNetwork


def find(path: str, weights: str | Path | None) -> ForeignNetwork:
    """The program in a file. It is code: run it only if you trust its origin."""
    if weights is not None:
        raise InputError(f"expected no weights beside {path!r}, which has its own")
    if not Path(path).is_file():
        raise CheckpointError(
            f"expected a TorchScript file at {path!r}, or a checkpoint of rood, .safetensors, "
            "found none"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit is deprecated
            net = torch.jit.load(path, map_location="cpu")
    except RuntimeError as e:
        raise CheckpointError(
            f"{path!r} is not a TorchScript file: if it is a state_dict, say "
            f"--model package.module:function --weights {path}"
        ) from e
    return ForeignNetwork(net=net, name=path)
