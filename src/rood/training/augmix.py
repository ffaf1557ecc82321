"""AugMix, batched on the device of the images."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from rood.shapes import Images, Scores, wide

WIDTH = 3  # chains per image
DEPTH = 3  # most changes per chain
DRAWS = WIDTH * (3 * DEPTH + 2) + 1  # random numbers per image
CHANGES = 8
AUTOCONTRAST, POSTERIZE, SOLARIZE, ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y = range(8)


def mixed(x: Images, severity: float, u: Float[Tensor, "b draws"]) -> Images:
    """x' = m x + (1 - m) sum_i w_i chain_i(x), m uniform in [0, 1], w uniform on the simplex.

    A chain is one to three changes, each of a kind and strength drawn per image. Hendrycks et al.,
    *AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty*, ICLR 2020,
    arXiv:1912.02781. Of its kinds equalise is missing, and the loss has no Jensen-Shannon term. `u`
    holds DRAWS numbers in [0, 1) per image, which determine the result.
    """
    b = len(x)
    m, weights, depths, rest = u.split([1, WIDTH, WIDTH, 3 * WIDTH * DEPTH], dim=1)
    weights = -(1 - weights).clamp_min(1e-7).log()  # exponential: their shares are even
    weights = weights / weights.sum(dim=1, keepdim=True)
    kind, strength, side = rest.view(b, WIDTH, DEPTH, 3).flatten(0, 1).unbind(dim=2)  # (b w, d)
    depth = (DEPTH * depths).floor().flatten()  # one less than how many
    level = 0.1 + strength * (max(severity, 0.1) - 0.1)
    chains = x.repeat_interleave(WIDTH, dim=0)  # all chains at once
    for i in range(DEPTH):
        changed = change(
            chains,
            (CHANGES * kind[:, i]).floor(),
            level[:, i] / 10,
            torch.where(side[:, i] < 0.5, -1.0, 1.0),
        )
        chains = torch.where(wide(depth >= i), changed, chains)
    together = (wide(weights.flatten()) * chains).view(b, WIDTH, *x.shape[1:]).sum(dim=1)
    m = wide(m.flatten())
    return (m * x + (1 - m) * together).clamp(0, 1)


def change(x: Images, kind: Scores, strength: Scores, side: Scores) -> Images:
    """One change for each image: `kind` says which, strength in [0, 1] how much."""
    moved = grid_sample(
        x,
        affine_grid(_affine(kind, strength * side), list(x.shape), align_corners=False),
        mode="bilinear",
        padding_mode="zeros",
        align_corners=False,
    )
    x = torch.where(wide(kind >= ROTATE), moved, x)
    x = torch.where(wide(kind == POSTERIZE), _posterized(x, strength), x)
    bright = x >= wide(1 - strength)
    x = torch.where(wide(kind == SOLARIZE) & bright, 1 - x, x)
    return torch.where(wide(kind == AUTOCONTRAST), _stretched(x), x)


def _affine(kind: Scores, amount: Scores) -> Float[Tensor, "b 2 3"]:
    """Where each pixel comes from; amount in [-1, 1] means 30 degrees, 0.3 or a third."""
    zero = torch.zeros_like(amount)
    angle = torch.where(kind == ROTATE, amount * math.pi / 6, zero)
    cos, sin = angle.cos(), angle.sin()

    def part(which: int, scale: float) -> Scores:
        return torch.where(kind == which, amount * scale, zero)

    # coordinates run from -1 to 1, so that a third of the side is 2 / 3
    rows = (
        torch.stack([cos, part(SHEAR_X, 0.3) - sin, part(TRANSLATE_X, 2 / 3)], dim=1),
        torch.stack([part(SHEAR_Y, 0.3) + sin, cos, part(TRANSLATE_Y, 2 / 3)], dim=1),
    )
    return torch.stack(rows, dim=1)


def _posterized(x: Images, strength: Scores) -> Images:
    """The upper 4 bits of a pixel, or fewer: 4 - floor(4 strength)."""
    size = wide(2 ** (4 + (4 * strength).floor().clamp(max=3)))
    return ((255 * x).round() / size).floor() * size / 255


def _stretched(x: Images) -> Images:
    """Each channel from 0 to 1, where it is not of one value."""
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    flat = high <= low
    return torch.where(flat, x, (x - low) / torch.where(flat, torch.ones_like(x), high - low))
