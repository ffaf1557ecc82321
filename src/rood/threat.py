"""Where an attack may go: a norm ball around x, cut with the pixel box [0, 1]."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rood.errors import InputError, expect
from rood.registry import unknown
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide

__all__ = [
    "L2",
    "LEVELS",
    "NORMS",
    "Linf",
    "Threat",
    "as_threats",
    "on_the_grid",
    "parse",
    "to_8_bit",
]


def __dir__() -> list[str]:
    return __all__


TOLERANCE = 1e-6  # of a float32 pixel after x + delta; far below 1/255
LEVELS = 255
NEAREST = 0.5  # the share of a level from which a perturbation is rounded up
HALVINGS = 20
ON_THE_GRID = 1e-3  # of a level; float32 pixels are off by a hundredth of it


def _norm(v: Images) -> Float[Tensor, "b 1 1 1"]:
    return wide(v.flatten(1).norm(dim=1).clamp_min(1e-12))


@dataclass(frozen=True)
class Threat(ABC):
    """A perturbation budget: a norm ball of radius eps, in pixel units, within the pixel box.

    The geometry lives here, so that each attack is written once. `str` and `parse` are inverse.
    """

    eps: float  # in pixel units

    norm: ClassVar[str]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eps) and self.eps >= 0):
            raise InputError(f"expected eps >= 0 in pixel units, got {self.eps}")

    def __str__(self) -> str:
        """As written in files and on the command line: "linf:8/255"; `parse` gives it back."""
        short = f"{self.eps:g}"
        plain = short if float(short) == self.eps else repr(self.eps)
        levels = self.eps * 255
        whole = round(levels)
        exact = whole > 0 and abs(levels - whole) < 1e-9
        ratio = f"{whole}/255"
        return f"{self.norm}:{ratio if exact and len(ratio) < len(plain) else plain}"

    @abstractmethod
    def shrink(self, delta: Images) -> Images:
        """The nearest perturbation within the norm ball."""

    @abstractmethod
    def ascent(self, grad: Images) -> Images:
        """The steepest direction of unit norm: argmax of <grad, v> over |v| <= 1."""

    @abstractmethod
    def sample(self, noise: Noise) -> Images:
        """A perturbation drawn evenly from the ball, for each image of `noise`."""

    @abstractmethod
    def size(self, delta: Images) -> Scores:
        """The norm of each perturbation."""

    def project(self, x_adv: Images, x: Images) -> Images:
        """The nearest allowed image to `x_adv` (for L2: allowed, and nearly the nearest)."""
        return (x + self.shrink(x_adv - x)).clamp(0, 1)

    def contains(self, x_adv: Images, x: Images) -> Bool[Tensor, " b"]:
        """Whether each image lies in the ball around its x and in the pixel box."""
        in_box = ((x_adv >= 0) & (x_adv <= 1)).flatten(1).all(dim=1)
        return in_box & (self.size(x_adv - x) <= self.eps * (1 + TOLERANCE) + TOLERANCE)


@dataclass(frozen=True)
class Linf(Threat):
    """Every pixel may change by eps.

    Examples
    --------
    >>> from rood.threat import Linf
    >>> threat = Linf(8 / 255)
    >>> str(threat)
    'linf:8/255'
    >>> x, x_adv = torch.full((1, 1, 2, 2), 0.5), torch.ones(1, 1, 2, 2)
    >>> threat.contains(threat.project(x_adv, x), x).item()
    True
    """

    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        super().__post_init__()
        eps = f"{self.eps:g}"
        what = "eps of at most 1, the whole range of a pixel"
        expect(self.eps <= 1, what, eps, do=f"did you mean {eps}/255?")

    def shrink(self, delta: Images) -> Images:
        return delta.clamp(-self.eps, self.eps)

    def ascent(self, grad: Images) -> Images:
        return grad.sign()

    def sample(self, noise: Noise) -> Images:
        return self.eps * (2 * noise.uniform() - 1)

    def size(self, delta: Images) -> Scores:
        return delta.abs().flatten(1).amax(dim=1)


@dataclass(frozen=True)
class L2(Threat):
    """The whole image may move by eps in Euclidean length.

    Examples
    --------
    >>> from rood.threat import L2
    >>> round(L2(0.5).shrink(torch.ones(1, 1, 2, 2)).norm().item(), 6)
    0.5
    """

    norm: ClassVar[str] = "l2"

    def shrink(self, delta: Images) -> Images:
        return delta * (self.eps / _norm(delta)).clamp(max=1)

    def ascent(self, grad: Images) -> Images:
        # first by the largest entry: the squares of a small but live gradient would underflow
        largest = wide(grad.abs().flatten(1).amax(dim=1))
        scaled = grad / torch.where(largest > 0, largest, torch.ones_like(largest))
        return scaled / _norm(scaled)

    def sample(self, noise: Noise) -> Images:
        v = noise.normal()
        radius = noise.uniform_scalar() ** (1 / v[0].numel())  # even in the ball, not on its shell
        return self.eps * radius * v / _norm(v)

    def size(self, delta: Images) -> Scores:
        return delta.flatten(1).norm(dim=1)


NORMS: dict[str, type[Threat]] = {t.norm: t for t in (Linf, L2)}


def parse(text: str) -> Threat:
    """Linf(8/255) from "linf:8/255"; a bare "8/255" means L-infinity.

    Examples
    --------
    >>> from rood.threat import parse
    >>> parse("l2:0.5")
    L2(eps=0.5)
    >>> str(parse("4/255"))
    'linf:4/255'
    """
    norm, colon, eps = text.strip().rpartition(":")
    norm = norm.lower() if colon else "linf"
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    over, slash, under = eps.partition("/")
    try:
        value = float(over) / float(under) if slash else float(over)
    except (ValueError, ZeroDivisionError) as e:
        raise InputError(f'expected a threat such as "linf:8/255" or "l2:0.5", got {text!r}') from e
    return NORMS[norm](value)


def as_threats(given: object) -> tuple[Threat, ...]:
    """Threats from what people write: "linf:8/255", 8 / 255, Linf(8 / 255), or several of these.

    Examples
    --------
    >>> from rood.threat import as_threats
    >>> [str(t) for t in as_threats([0.1, "8/255", "l2:0.5"])]
    ['linf:0.1', 'linf:8/255', 'l2:0.5']
    """
    if isinstance(given, Threat):
        return (given,)
    if isinstance(given, str):
        return () if given.strip() == "none" else tuple(map(parse, given.split(",")))
    if isinstance(given, Real) and not isinstance(given, bool):
        return (Linf(float(given)),)
    if not isinstance(given, Iterable) or isinstance(given, Tensor | Mapping):
        got = given.__name__ if isinstance(given, type) else type(given).__name__
        raise InputError(
            'expected budgets such as 8 / 255, "linf:8/255" or Linf(8 / 255), several in a list, '
            f"got {got}"
        )
    return tuple(threat for one in given for threat in as_threats(one))


def to_8_bit(x_adv: Images, x: Images, threat: Threat) -> Images:
    """The images of whole levels n/255 next to `x_adv` that `threat` allows around `x`.

    Perturbations are rounded to the nearest level, but never beyond eps; where the whole image then
    still lies outside its ball (L2), those with the smallest remainder go towards 0, no more of
    them than needed. `x` must consist of whole levels itself: else its ball may hold none.

    Examples
    --------
    >>> from rood.threat import Linf, to_8_bit
    >>> x = torch.full((1, 1, 1, 2), 100 / 255)
    >>> x_adv = x + torch.tensor([1.4, -3.0]) / 255
    >>> (255 * to_8_bit(x_adv, x, Linf(2 / 255))).round().flatten().tolist()
    [101.0, 98.0]
    """
    base = (LEVELS * x.double()).round()
    if not bool(on_the_grid(x).all()):
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


def on_the_grid(x: Images) -> Bool[Tensor, " b"]:
    """Whether each image consists of whole levels n/255."""
    levels = LEVELS * x.double()
    return ((levels - levels.round()).abs() <= ON_THE_GRID).flatten(1).all(dim=1)


def _rounded(wanted: Images, up: Float[Tensor, "b 1 1 1"], most: int) -> Images:
    """Whole levels: the size rounded up where its remainder is at least 1 - up, at most `most`."""
    return wanted.sign() * (wanted.abs() + up).floor().clamp(max=most)


def _inside(perturbation: Images, threat: Threat) -> Tensor:
    size = threat.size(perturbation / LEVELS)
    return wide(size <= threat.eps * (1 + 1e-6))
