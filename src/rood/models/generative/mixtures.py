"""Gaussian mixtures of ID images and of outliers in one metric, with a certified ratio."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from rood.errors import InputError
from rood.numerics.covariance import squared_distances
from rood.shapes import Images, Scores
from rood.threat import L2, Linf, Threat

ROUNDS = 20  # EM iterations
LEAST = 1e-3  # smallest scale, relative to the largest
WIDER = 4.0  # least ratio of the variances of outliers and ID images


class Mixtures(NamedTuple):
    r"""log g(x) = lse_k(-n/2 log v_k - d_k^2 / (2 v_k)) - log k, d_k = |u(x) - c_k|, n pixels.

    u(x) = (V x / scales, (x - V' V x) / rest): the rows of V are principal axes of the ID images,
    and the residual has one scale, so that the metric is small on disk. The certificate below holds
    for any V, c and v.
    """

    axes: Float[Tensor, "r n"]
    scales: Float[Tensor, " s"]  # of each axis, and of the rest
    inside: Float[Tensor, "k m"]  # centroids, m = r + n
    outside: Float[Tensor, "l m"]
    log_var_in: Float[Tensor, " k"]
    log_var_out: Float[Tensor, " l"]

    def coordinates(self, x: Images) -> Float[Tensor, "b m"]:
        """u(x), in float64."""
        v, scales, flat = self.axes.double(), self.scales.double(), x.flatten(1).double()
        along = flat @ v.T
        return torch.cat([along / scales[:-1], (flat - along @ v) / scales[-1]], dim=1)

    def log_densities(self, x: Images, radius: float = 0.0) -> tuple[Scores, Scores]:
        """Upper bound of log g_in and lower bound of log g_out within the radius of x."""
        u, n = self.coordinates(x), self.axes.shape[1]
        near, far = (
            squared_distances(u, c.double()).clamp_min(0) for c in (self.inside, self.outside)
        )
        if radius:
            near = relu(near.sqrt() - radius).square()
            far = (far.sqrt() + radius).square()
        return _log_mixture(near, self.log_var_in, n), _log_mixture(far, self.log_var_out, n)

    def log_ratio(self, x: Images, radius: float = 0.0) -> Scores:
        """log g_in - log g_out at x, or its upper bound within the radius."""
        inside, outside = self.log_densities(x, radius)
        return inside - outside

    def radius(self, threat: Threat) -> float:
        """The largest distance in the metric that a threat model allows."""
        n = self.axes.shape[1]
        if isinstance(threat, L2):
            return threat.eps * self.stretch()
        if isinstance(threat, Linf):
            return threat.eps * math.sqrt(n) * self.stretch()
        raise InputError(f"expected an L2 or L-infinity ball to certify, got {threat}")

    def stretch(self) -> float:
        """max |u(x)| over |x| = 1, also if V is only nearly orthonormal."""
        v, scales = self.axes.double(), self.scales.double()
        lower = torch.linalg.qr(v.T).R.T  # V = L Q with orthonormal rows in Q
        gram = lower.T @ (lower / scales[:-1, None].square())
        left = torch.eye(len(v), dtype=v.dtype, device=v.device) - lower.T @ lower
        gram = gram + left @ left / scales[-1].square()
        longest = torch.linalg.eigvalsh(gram)[-1].clamp_min(0).sqrt()
        return max(longest.item(), 1 / scales[-1].item())


class Kept(nn.Module):
    """Mixtures as buffers of a module, saved and moved with it."""

    def __init__(self, *, pixels: int, axes: int, centroids: int) -> None:
        super().__init__()
        wide = (centroids, axes + pixels)
        sizes = ((axes, pixels), (axes + 1,), wide, wide, (centroids,), (centroids,))
        for name, size in zip(Mixtures._fields, sizes, strict=True):
            self.register_buffer(name, torch.zeros(size))

    @property
    def value(self) -> Mixtures:
        """The mixtures."""
        return Mixtures(*(getattr(self, name) for name in Mixtures._fields))

    @property
    def empty(self) -> bool:
        """Whether no mixtures were put in yet."""
        return not bool((self.get_buffer("scales") > 0).all())

    @torch.no_grad()
    def put(self, mixtures: Mixtures) -> "Kept":
        """Copy the values of mixtures of the same sizes."""
        for name, value in mixtures._asdict().items():
            self.get_buffer(name).copy_(value)
        return self


@torch.no_grad()
def fitted(
    images: Images,
    outliers: Float[Tensor, "o c h w"] | None,
    generator: Generator,
    *,
    axes: int = 100,
    centroids: int = 100,
) -> Mixtures:
    """Fit by PCA and spherical EM in float64.

    Without outliers, their mixture is that of the ID images with four times the variance.
    """
    n, count = images[0].numel() if len(images) else 1, len(images)
    least = max(2, centroids)
    if count < least or (outliers is not None and len(outliers) < least):
        few = count if outliers is None else min(count, len(outliers))
        raise InputError(
            f"expected at least {least} images, and as many outliers, for {centroids} centroids, "
            f"got {few}: lower centroids or give more"
        )
    v, scales = principal(images, min(axes, n))
    bare = Mixtures(v, scales, *(v[:0],) * 2, *(scales[:0],) * 2)
    inside, var_in = spherical(bare.coordinates(images), n, centroids, generator)
    outside, var_out = inside, WIDER * var_in
    if outliers is not None:
        outside, own = spherical(bare.coordinates(outliers), n, centroids, generator)
        var_out = torch.maximum(own, var_out)
    flat = torch.ones(centroids, dtype=torch.float64, device=images.device)
    return Mixtures(v, scales, inside, outside, flat * var_in.log(), flat * var_out.log())


def principal(images: Images, r: int) -> tuple[Float[Tensor, "{r} n"], Float[Tensor, " s"]]:
    """The first r principal axes, the scale along each, and the scale of the residual."""
    flat = images.flatten(1).double()
    centred = flat - flat.mean(dim=0)
    variances, vectors = torch.linalg.eigh(centred.T @ centred / len(flat))
    variances = variances.flip(0).clamp_min(0)
    rest = variances[r:].mean() if r < len(variances) else variances[-1]
    scales = torch.cat([variances[:r], rest[None]]).sqrt()
    largest = scales.max()
    if not largest > 0:
        raise InputError("expected images that differ to learn a metric from, got all the same")
    return vectors.flip(1)[:, :r].T.contiguous(), scales.clamp_min(LEAST * largest)


def spherical(
    u: Float[Tensor, "b m"], n: int, k: int, generator: Generator
) -> tuple[Float[Tensor, "{k} m"], Float[Tensor, ""]]:
    """Centroids of a mixture of equal weights, and their common variance.

    n is the dimension of the images. Initialised as in k-means++; a centroid without images does
    not move.
    """
    centres = u[_spread(u, k, generator)]
    d = squared_distances(u, centres).clamp_min(0)
    log_var = (d.amin(dim=1).mean() / n).clamp_min(1e-6).log().expand(k)
    for _ in range(ROUNDS):
        share = (-n / 2 * log_var - d / (2 * log_var.exp())).softmax(dim=1)
        total = share.sum(dim=0)
        taken = total > 1e-6
        moved = share.T @ u / total.clamp_min(1e-6)[:, None]
        centres = torch.where(taken[:, None], moved, centres)
        d = squared_distances(u, centres).clamp_min(0)
        var = (share * d).sum(dim=0) / total.clamp_min(1e-6) / n
        log_var = torch.where(taken, var.clamp_min(1e-6).log(), log_var)
    return centres, ((share * d).sum() / len(u) / n).clamp_min(1e-6)


def _spread(u: Float[Tensor, "b m"], k: int, generator: Generator) -> Tensor:
    """k-means++: each row drawn in proportion to its squared distance from those before."""
    first = int(torch.randint(len(u), (), generator=generator))
    chosen = [first]
    nearest = (u - u[first]).square().sum(dim=1)
    for _ in range(k - 1):
        weights = nearest.cpu() + 1e-300  # so that equal rows can be drawn
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        nearest = torch.minimum(nearest, (u - u[chosen[-1]]).square().sum(dim=1))
    return torch.tensor(chosen, device=u.device)


def _log_mixture(d: Float[Tensor, "b k"], log_var: Float[Tensor, " k"], n: int) -> Scores:
    log_var = log_var.double()
    each = -n / 2 * log_var - d / (2 * log_var.exp())
    return each.logsumexp(dim=1) - math.log(len(log_var))
