"""How much an encoder forgets: the reason why images far out can have any code.

Liang et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*,
arXiv:2009.08016, sections 2.2 to 2.4. A code of d numbers cannot tell all images of more than d
pixels apart; what its Jacobian's null space holds it does not see. A bijective encoder (Glow) has
no such space, and is open only to what its likelihood calls alike; a reconstruction score compares
x with what the code remembers of it, so that taking a code over does not take the score over.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from rood.analysis.null_space import jacobian
from rood.errors import InputError
from rood.models.model import Model
from rood.models.taps import watching
from rood.shapes import Images

CODE_BITS = 32  # of a float32
PIXEL_BITS = 8
EXACT = 20_000  # draws times spots up to which whole numbers are fast


@dataclass(frozen=True)
class Layer:
    """What one layer gives, for one image."""

    name: str
    kind: str  # its class
    size: int


@dataclass(frozen=True)
class Code:
    """A code against the images it stands for."""

    name: str
    size: int  # d
    log2_ratio: float  # of states: 32 d bits of code against 8 c h w bits of image
    coverage: float  # lower bound of P(every code has an image), if all images' codes were random
    ranks: tuple[int, ...]  # of the Jacobian, one for each image looked at
    null_space: tuple[int, ...]  # dimensions in which each image can move unseen


@dataclass(frozen=True)
class Dimensions:
    """Where a network starts to forget, and how much it does."""

    input: int  # c h w
    layers: tuple[Layer, ...]  # in the order in which they run
    reduced_at: str | None  # the first layer that is smaller than the input
    codes: tuple[Code, ...]  # features and logits

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, to show."""
        return asdict(self)


def dimensions(model: Model, x: Images) -> Dimensions:
    """Look at the network's layers, and at the Jacobians of its codes at the images x.

    In float64, so that a rank is a count and not a guess. A Jacobian takes a backward pass for each
    entry of a code: a few images are enough.
    """
    if len(x) == 0:
        raise InputError("expected at least one image to look at, got none")
    double, x = copy.deepcopy(model).double().eval(), x.detach().double()
    n = x[0].numel()
    layers = _layers(double, x[:1])
    _, slopes = jacobian(lambda v: torch.cat([(out := double(v)).features, out.logits], dim=1), x)
    parts = {"features": slopes[:, : -model.classes], "logits": slopes[:, -model.classes :]}
    return Dimensions(
        input=n,
        layers=layers,
        reduced_at=next((layer.name for layer in layers if layer.size < n), None),
        codes=tuple(_code(name, part) for name, part in parts.items()),
    )


def _layers(model: Model, x: Images) -> tuple[Layer, ...]:
    leaves = {n: m for n, m in model.net.named_modules() if not list(m.children())}
    order: list[int] = []
    with torch.no_grad(), watching(list(leaves.values()), order) as seen:
        model.net((x - model.mean) / model.std)
    names, calls = list(leaves), [iter(s.outputs) for s in seen]
    return tuple(
        Layer(names[i], type(leaves[names[i]]).__name__, next(calls[i]).numel()) for i in order
    )


def _code(name: str, slopes: Float[Tensor, "b d n"]) -> Code:
    d, n = slopes.shape[1:]
    code_bits, image_bits = CODE_BITS * d, PIXEL_BITS * n
    ranks = ranks_of(slopes)
    return Code(
        name=name,
        size=d,
        log2_ratio=float(code_bits - image_bits),
        coverage=coverage_of_bits(image_bits, code_bits),
        ranks=ranks,
        null_space=tuple(n - r for r in ranks),
    )


def ranks_of(slopes: Float[Tensor, "b d n"]) -> tuple[int, ...]:
    """The rank of each Jacobian; n less it is the dimension of its null space."""
    return tuple(torch.linalg.matrix_rank(slopes).tolist())


def stirling(n: int, k: int) -> int:
    """S(n, k): the ways to part n things into k heaps, none of them empty."""
    if n < 0 or k < 0:
        raise InputError(f"expected n >= 0 and k >= 0, got {n} and {k}")
    row = [1]  # S(0, 0)
    for _ in range(n):
        row = [0, *(j * row[j] + row[j - 1] for j in range(1, len(row))), 1]
    return row[k] if k <= n else 0


def coverage(n: int, spots: int) -> float:
    """P(n even draws hit each of `spots` at least once) = spots! S(n, spots) / spots^n.

    In whole numbers where that is fast, else by the chances of having hit j spots after each draw,
    sums of positive terms that lose no digits.
    """
    if n < 0 or spots < 1:
        raise InputError(f"expected n >= 0 draws and spots >= 1, got {n} and {spots}")
    if n < spots:
        return 0.0
    if n * spots <= EXACT:
        return math.factorial(spots) * stirling(n, spots) / spots**n
    j = np.arange(spots + 1)
    hit = np.zeros(spots + 1)
    hit[0] = 1.0
    for _ in range(n):
        fresh = hit * (spots - j) / spots
        hit = hit * j / spots
        hit[1:] += fresh[:-1]
    return float(hit[-1])


def coverage_of_bits(image_bits: int, code_bits: int) -> float:
    """A lower bound of `coverage` for n = 2^image_bits and F = 2^code_bits: 1 - F exp(-n / F)."""
    if image_bits < code_bits:
        return 0.0
    draws_per_code = 2.0 ** min(image_bits - code_bits, 1000)
    return max(0.0, -math.expm1(min(0.0, code_bits * math.log(2) - draws_per_code)))


def as_matrix(layer: nn.Module, shape: Sequence[int]) -> Float[Tensor, "m n"]:
    """The matrix W of a layer that gives W x + b for inputs of `shape`, such as a convolution."""
    n = math.prod(shape)
    like = next(layer.parameters(), torch.empty(0))
    basis = torch.eye(n, dtype=like.dtype, device=like.device).view(n, *shape)
    with torch.no_grad():
        return (layer(basis) - layer(torch.zeros_like(basis[:1]))).flatten(1).T.contiguous()
