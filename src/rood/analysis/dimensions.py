"""How much information an encoder discards, which is why OOD images can have the code of any image.

Liang et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*,
arXiv:2009.08016, sections 2.2 to 2.4. A code of d numbers cannot distinguish all images of more
than d pixels: it does not see a move within the null space of its Jacobian. A bijective encoder
(Glow) has no null space; a reconstruction score compares x with what its code keeps, so that an
image with another's code does not get its score.
"""

import copy
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rood import _moved
from rood.errors import CapabilityError, InputError
from rood.goals import Encoder
from rood.models.model import Model
from rood.models.taps import watching
from rood.shapes import Images

CODE_BITS = 32  # of a float32
PIXEL_BITS = 8


@dataclass(frozen=True)
class Layer:
    """What one layer gives, for one image."""

    name: str
    kind: str  # its class
    size: int


@dataclass(frozen=True)
class Code:
    """The size of a code beside that of the images it is computed from."""

    name: str
    size: int  # d
    log2_ratio: float  # of states: 32 d bits of code against 8 c h w bits of image
    coverage: float  # lower bound of P(every code has an image), if all images' codes were random
    ranks: tuple[int, ...]  # of the Jacobian, one for each image looked at
    null_space: tuple[int, ...]  # dimensions in which each image can move unseen


@dataclass(frozen=True)
class Dimensions:
    """Where a network becomes smaller than its input, and how many directions it discards."""

    input: int  # c h w
    layers: tuple[Layer, ...]  # in the order in which they run
    reduced_at: str | None  # the first layer that is smaller than the input
    codes: tuple[Code, ...]  # features and logits

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, to show."""
        return asdict(self)


def dimensions(model: Model, x: Images) -> Dimensions:
    """The sizes of the network's layers, and the ranks of its codes' Jacobians at the images x.

    In float64, so that ranks are exact. A Jacobian takes a backward pass for each entry of a code:
    a few images are enough.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> features, logits = rood.analysis.dimensions.dimensions(model, x[:1]).codes
    >>> logits.size, logits.null_space
    (6, (778,))
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


def jacobian(encoder: Encoder, x: Images) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d n"]]:
    """The codes, and the derivative of each of their entries with respect to the image's pixels."""
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        codes = encoder(x)
        if not _reach(codes, x):
            raise CapabilityError(
                "expected codes with a gradient to the pixels, got codes that are cut off from "
                "them: keep the network within torch, without detach"
            )
        rows = [torch.autograd.grad(c.sum(), x, retain_graph=True)[0] for c in codes.unbind(1)]
    return codes.detach().double(), torch.stack(rows, dim=1).flatten(2).double()


def _reach(codes: Tensor, x: Tensor) -> bool:
    """Whether autograd connects the codes with the pixels."""
    if not codes.requires_grad:
        return False
    return torch.autograd.grad(codes.sum(), x, retain_graph=True, allow_unused=True)[0] is not None


def ranks_of(slopes: Float[Tensor, "b d n"]) -> tuple[int, ...]:
    """The rank of each Jacobian; n less it is the dimension of its null space."""
    return tuple(torch.linalg.matrix_rank(slopes).tolist())


def coverage_of_bits(image_bits: int, code_bits: int) -> float:
    """A lower bound of P(n even draws hit each of F codes at least once): 1 - F exp(-n / F).

    n = 2^image_bits images, F = 2^code_bits codes.
    """
    if image_bits < code_bits:
        return 0.0
    draws_per_code = 2.0 ** min(image_bits - code_bits, 1000)
    return max(0.0, -math.expm1(min(0.0, code_bits * math.log(2) - draws_per_code)))


def __getattr__(name: str) -> Any:
    return _moved.name(__name__, name)
