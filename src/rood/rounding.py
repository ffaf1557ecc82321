"""Attacked images as a file of 8 bits a pixel holds them, still within their budget."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.errors import InputError
from rood.shapes import Images, wide
from rood.threat import Threat

LEVELS = 255
NEAREST = 0.5  # the share of a level from which a perturbation is rounded up
HALVINGS = 20
ON_THE_GRID = 1e-3  # of a level; float32 pixels are off by a hundredth of it


def to_8_bit(x_adv: Images, x: Images, threat: Threat) -> Images:
    """The images of whole levels n/255 next to `x_adv` that `threat` allows around `x`.

    Perturbations are rounded to the nearest level, but never beyond eps; where the whole image then
    still lies outside its ball (L2), those with the smallest remainder go towards 0, no more of
    them than needed. `x` must consist of whole levels itself: else its ball may hold none.
    """
    levels = LEVELS * x.double()
    base = levels.round()
    if bool(((levels - base).abs() > ON_THE_GRID).any()):
        raise InputError(
            "expected images of whole levels n/255 to save with 8 bits, got others: "
            "keep them as float numbers (--format npz)"
        )
    wanted = LEVELS * threat.project(x_adv, x).double() - base
    most = int(LEVELS * threat.eps + ON_THE_GRID / 10)
    up = torch.full((len(x), 1, 1, 1), NEAREST, dtype=torch.float64, device=x.device)
    found = _rounded(wanted, up, most)
    low, high = torch.zeros_like(up), up
    for _ in range(HALVINGS if bool((~_inside(found, threat)).any()) else 0):
        up = (low + high) / 2
        fits = _inside(_rounded(wanted, up, most), threat)
        low, high = torch.where(fits, up, low), torch.where(fits, high, up)
    found = torch.where(_inside(found, threat), found, _rounded(wanted, low, most))
    return (base + found).to(x.dtype) / LEVELS


def _rounded(wanted: Images, up: Float[Tensor, "b 1 1 1"], most: int) -> Images:
    """Whole levels: the size rounded up where its remainder is at least 1 - up, at most `most`."""
    return wanted.sign() * (wanted.abs() + up).floor().clamp(max=most)


def _inside(perturbation: Images, threat: Threat) -> Tensor:
    size = threat.size(perturbation / LEVELS)
    return wide(size <= threat.eps * (1 + 1e-6))
