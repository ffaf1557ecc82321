"""TorchScript files: logits and their gradient, but no features."""

import os
import warnings
import zipfile
from pathlib import Path

import torch

from rood._files import opened
from rood.errors import CheckpointError, InputError, expect_trust
from rood.models.sources.base import ForeignNetwork


def find(path: str, weights: str | Path | None, trust: bool) -> ForeignNetwork:
    """The program in a file. It is code: run it only if you trust its origin."""
    if weights is not None:
        raise InputError(f"expected no weights beside {path!r}, which has its own")
    if not os.path.isfile(Path(path)):
        raise CheckpointError(
            f"expected a TorchScript file at {path!r}, or a checkpoint of rood, .safetensors, "
            "found none"
        )
    not_one = (
        f"{path!r} is not a TorchScript file: if it is a state_dict, say "
        f"--model package.module:function --weights {path}"
    )
    if not trust:  # torch does not see the file
        if not _is_program(path):
            raise CheckpointError(not_one)
        expect_trust(trust, path, "a TorchScript file is a program that torch runs")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit is deprecated
            net = torch.jit.load(path, map_location="cpu")
    except RuntimeError as e:
        raise CheckpointError(not_one) from e
    return ForeignNetwork(net=net, name=path)


def _is_program(path: str) -> bool:
    """Whether an archive has the parts of a program, and not only those of a state_dict."""
    try:
        with opened(Path(path)) as file, zipfile.ZipFile(file) as archive:
            names = {n.rpartition("/")[2] for n in archive.namelist()}
    except Exception:  # zipfile raises errors of many kinds
        return False
    return bool(names & {"constants.pkl", "model.json"})
