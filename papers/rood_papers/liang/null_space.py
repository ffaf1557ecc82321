"""Images with a given code, by linear algebra instead of gradient ascent.

For a linear encoder f(x) = W x and W n = 0, x + n has the code of x, however large n is. Liang et
al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*, arXiv:2009.08016,
section 2.2. No threat model holds these images: only the pixel box does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rood.analysis.dimensions import jacobian
from rood.errors import InputError
from rood.goals import Encoder
from rood.shapes import Images, Scores


@dataclass(frozen=True, eq=False)
class Reached:
    """The images found; their pixels are in [0, 1] exactly, their codes to within `gap`."""

    images: Images
    gap: Scores  # |f(x) - f(x_in)| / |f(x_in)|
    rounds: Int[Tensor, " b"]  # how many it took, or all that were allowed
    converged: Bool[Tensor, " b"]


def match_linear(
    weight: Float[Tensor, "d n"],
    x_in: Images,
    start: Images,
    *,
    rounds: int = 1000,
    tolerance: float = 1e-9,  # of `gap`
) -> Reached:
    """The image nearest to `start` with the code W x_in and pixels in [0, 1].

    x' + W^+ (W x_in - W x') is the nearest with the code; alternated with clamping, and Dykstra's
    correction for it, it ends at the nearest with both, which exists: x_in is one.
    """
    _check(x_in, start)
    w = weight.double()
    codes = x_in.flatten(1).double() @ w.T
    flat, size = start.flatten(1).double(), _size(codes)
    found, gap, used = _alternate(w, codes, flat, rounds, tolerance, size)
    return Reached(found.view_as(start).to(start), gap, used, gap <= tolerance)


def match_locally(
    encoder: Encoder,
    x_in: Images,
    start: Images,
    *,
    rounds: int = 50,
    inner_rounds: int = 50,
    tolerance: float = 1e-9,  # of `gap`; needs an encoder and images in float64
) -> Reached:
    """Gauss-Newton: repeat `match_linear` in the linear region around x_t.

    For piecewise linear networks, W is the Jacobian. A step that makes the code worse has left its
    linear region; the next one is half as long.
    """
    _check(x_in, start)
    with torch.no_grad():
        codes = encoder(x_in).double()
        size = _size(codes)
        x, gap = start, (encoder(start).double() - codes).norm(dim=1) / size
    used = torch.zeros_like(gap, dtype=torch.int64)
    share = torch.ones_like(gap)
    for _ in range(rounds):
        todo = ((gap > tolerance) & (share > 1e-6)).nonzero()[:, 0]
        if len(todo) == 0:
            break
        used[todo] += 1
        at, want = x[todo], codes[todo]
        values, w = jacobian(encoder, at)
        flat = at.flatten(1).double()
        wanted = want - values + torch.einsum("bdn,bn->bd", w, flat)
        ahead, _, _ = _alternate(w, wanted, flat, inner_rounds, tolerance / 10, size[todo])
        new = (flat + share[todo, None] * (ahead - flat)).view_as(at).to(at)
        with torch.no_grad():
            new_gap = (encoder(new).double() - want).norm(dim=1) / size[todo]
        better = new_gap < gap[todo]
        x, gap = x.clone(), gap.clone()
        x[todo[better]], gap[todo[better]] = new[better], new_gap[better]
        share[todo] = torch.where(better, torch.ones_like(new_gap), share[todo] / 2)
    return Reached(x, gap, used, gap <= tolerance)


def _alternate(
    w: Float[Tensor, "*b d n"],
    codes: Float[Tensor, "b d"],
    x: Float[Tensor, "b n"],
    rounds: int,
    tolerance: float,
    size: Float[Tensor, " b"],  # of the code that the gap is a share of
) -> tuple[Float[Tensor, "b n"], Float[Tensor, " b"], Int[Tensor, " b"]]:
    """Alternate projections onto the code's plane and the pixel box; each image stops by itself."""
    inverse = torch.linalg.pinv(w)
    code_of = lambda v: (w @ v[..., None])[..., 0]
    x = x.clamp(0, 1)
    owed = torch.zeros_like(x)  # Dykstra's correction: what clamping removed in the last round
    gap = (code_of(x) - codes).norm(dim=1) / size
    used = torch.zeros_like(gap, dtype=torch.int64)
    for _ in range(rounds):
        todo = gap > tolerance
        if not todo.any():
            break
        on_plane = x + (inverse @ (codes - code_of(x))[..., None])[..., 0]
        in_box = (on_plane + owed).clamp(0, 1)
        owed = on_plane + owed - in_box
        x = torch.where(todo[:, None], in_box, x)
        gap, used = (code_of(x) - codes).norm(dim=1) / size, used + todo
    return x, gap, used


def _size(codes: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
    return codes.norm(dim=1).clamp_min(1e-12)


def _check(x_in: Images, start: Images) -> None:
    if x_in.shape != start.shape:
        shapes = f"{tuple(x_in.shape)} and {tuple(start.shape)}"
        raise InputError(f"expected one start per ID image, got {shapes}")


def as_matrix(layer: nn.Module, shape: Sequence[int]) -> Float[Tensor, "m n"]:
    """The matrix W of a layer that gives W x + b for inputs of `shape`, such as a convolution."""
    n = math.prod(shape)
    like = next(layer.parameters(), torch.empty(0))
    basis = torch.eye(n, dtype=like.dtype, device=like.device).view(n, *shape)
    with torch.no_grad():
        return (layer(basis) - layer(torch.zeros_like(basis[:1]))).flatten(1).T.contiguous()
