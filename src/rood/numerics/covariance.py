"""Distances under a covariance matrix that may be singular."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.numerics.box import Box

RIDGES = (0.0, *(10.0**e for e in range(-10, -3)))


def whitener(
    sigma: Float[Tensor, "d d"],
) -> tuple[Float[Tensor, "d d"], Float[Tensor, ""]]:
    r"""A with A' A = (Sigma + r tr(Sigma)/d I)^-1, and r: the first of `RIDGES` that is enough.

    ||A (f - mu)||^2 is then the Mahalanobis distance. Dead features make Sigma singular; r is 0
    unless Cholesky fails or the pivots span more than 1e12, and is kept so that it can be reported.
    """
    d = len(sigma)
    eye = torch.eye(d, dtype=sigma.dtype, device=sigma.device)
    scale = sigma.trace() / d
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # all features constant
    for r in RIDGES:
        lower, info = torch.linalg.cholesky_ex(sigma + r * scale * eye)
        pivots = lower.diagonal() ** 2
        if info == 0 and pivots.min() * 1e12 >= pivots.max():
            break
    return torch.linalg.solve_triangular(lower, eye, upper=False), torch.full_like(scale, r)


def squared_distances(a: Float[Tensor, "b d"], means: Float[Tensor, "k d"]) -> Float[Tensor, "b k"]:
    """|a - m|^2 for every pair, as one matrix product, which float64 is precise enough for."""
    centre = means.mean(dim=0)
    a, m = a - centre, means - centre
    return (a**2).sum(dim=1, keepdim=True) + (m**2).sum(dim=1) - 2 * a @ m.T


def soft_minimum(d: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
    """A smooth minimum over classes: the gradient of the hard one jumps with the nearest class."""
    t = d.detach().std(dim=1, keepdim=True).clamp_min(1e-6)
    return -(t * (-d / t).logsumexp(dim=1, keepdim=True)).squeeze(1)


def distances_within(a: Box, means: Float[Tensor, "k d"]) -> Box:
    """Bounds of `squared_distances` over a box of vectors (b, d): entries add up by themselves."""
    each = (a.moved(-m).squared() for m in means)
    low, high = zip(*((e.low.sum(dim=1), e.high.sum(dim=1)) for e in each), strict=True)
    found = Box(torch.stack(low, dim=1), torch.stack(high, dim=1))
    # what a matrix product loses of a small distance between long vectors
    lost = a.size.square().sum(dim=1, keepdim=True) + means.square().sum(dim=1)
    return found.widened(1e-13 * lost)
