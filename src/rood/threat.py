"""Where an attack may go: a norm ball or a few pixels around x, cut with the pixel box [0, 1]."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from rood.corruptions.base import checked, corrupt, names
from rood.errors import InputError, expect
from rood.registry import unknown
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide

__all__ = [
    "L0",
    "L1",
    "L2",
    "LEVELS",
    "NORMS",
    "Corrupted",
    "Linf",
    "Patch",
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
PER_UNIT = 2  # pixels that an L1 step pushes, per unit of eps: pixels can move by 1/2 on average
NEARLY = 0.9  # of the smallest slope among them: equal ones are pushed equally
AHEAD = 16  # steps, over which a place is compared with those in use
_EXPONENT = re.compile(r"(?<=[\d.])([eE])\+")  # of 1e+06: no corruption before this plus


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

    def uphill(self, gradient: Images, at: Images) -> Images:
        """The direction in which attacks move from `at`: the steepest one, unless it is too narrow
        to be followed in many steps.
        """
        return self.ascent(gradient)

    def advance(self, at: Images, gradient: Images, length: float | Tensor, x: Images) -> Images:
        """The allowed image after one step of an attack from `at`."""
        return self.move(at, self.uphill(gradient, at), length, x)

    def move(self, at: Images, along: Images, length: float | Tensor, x: Images) -> Images:
        """The same along a given direction."""
        return self.project(at + length * along, x)

    @abstractmethod
    def sample(self, noise: Noise) -> Images:
        """A perturbation drawn evenly from the ball, for each image of `noise`."""

    @abstractmethod
    def size(self, delta: Images) -> Scores:
        """The norm of each perturbation."""

    def project(self, x_adv: Images, x: Images) -> Images:
        """The nearest allowed image to `x_adv` (for L2: allowed, and nearly the nearest)."""
        return (x + self.shrink(x_adv - x)).clamp(0, 1)

    def origins(self, x: Images) -> tuple[Images, ...]:
        """The images around which balls of `local` lie: x itself, unless it may be moved first."""
        return (x,)

    @property
    def local(self) -> "Threat":
        """The ball around each of the `origins`."""
        return self

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


@dataclass(frozen=True)
class L1(Threat):
    r"""The changes of all pixels may add up to eps: some pixels change a lot, most not at all.

    The nearest allowed image is exact, the pixel box included: d_i = sign(v_i) min(max(|v_i| - t,
    0), room_i) with the one t >= 0 for which sum |d_i| = eps. A step pushes the pixels of the
    largest slopes that the box does not stop, about as many as eps can move: the steepest
    direction is a single pixel. Croce & Hein, *Mind the box: l1-APGD for sparse adversarial
    attacks on image classifiers*, arXiv:2103.01208.

    Examples
    --------
    >>> from rood.threat import L1
    >>> L1(1.0).shrink(torch.tensor([[[[1.0, 0.75, 0.1]]]])).flatten().tolist()
    [0.625, 0.375, 0.0]
    """

    norm: ClassVar[str] = "l1"

    def shrink(self, delta: Images) -> Images:
        return _least_moved(delta, torch.full_like(delta, torch.inf), self.eps)

    def project(self, x_adv: Images, x: Images) -> Images:
        delta = x_adv - x
        room = torch.where(delta > 0, 1 - x, x)
        found = (x + _least_moved(delta, room, self.eps)).clamp(0, 1)
        size = (found - x).double().abs().flatten(1)
        over = size.sum(dim=1, keepdim=True) - self.eps  # by rounding, where many change a little
        if bool((over > TOLERANCE).any()):  # the smallest changes are taken back
            small, order = size.sort(dim=1)
            back = torch.empty_like(size).scatter(1, order, small.cumsum(dim=1) - small) < over
            found = torch.where((back & (over > TOLERANCE)).view_as(x), x, found)
        return found

    def ascent(self, grad: Images) -> Images:
        return _at_largest(grad.abs().flatten(1)).view_as(grad) * grad.sign()

    def uphill(self, gradient: Images, at: Images) -> Images:
        slope = gradient.abs()
        stopped = torch.where(gradient > 0, at >= 1, at <= 0)
        free = slope.masked_fill(stopped, 0).flatten(1)
        some = min(free.shape[1], math.ceil(PER_UNIT * self.eps) + 1)
        least = free.topk(some, dim=1).values[:, -1]
        # those that the box stops are pushed on, else the projection would take them back
        push = (slope - NEARLY * wide(least)).clamp_min(0)
        total = wide(push.masked_fill(stopped, 0).flatten(1).sum(dim=1))
        return push * gradient.sign() / torch.where(total > 0, total, torch.ones_like(total))

    def sample(self, noise: Noise) -> Images:
        sizes = -(1 - noise.uniform()).log()  # exponential: their shares are even on the simplex
        total = wide(sizes.flatten(1).sum(dim=1)) - (1 - noise.uniform_scalar()).log()
        signs = (noise.uniform() - 0.5).sign()
        return 0.999999 * self.eps * signs * sizes / total

    def size(self, delta: Images) -> Scores:
        return delta.flatten(1).double().abs().sum(dim=1).to(delta.dtype)


@dataclass(frozen=True)
class _Places(Threat):
    """Pixels of some places may take any value, those of others none but their own.

    Which places, is up to the attack. A step moves pixels by length / eps of their range. It goes
    to the places that promise most: what the moves so far are worth by the gradient, and a few
    steps ahead.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = self.eps == int(self.eps)
        expect(whole, f"a whole number of pixels for {self.norm}", f"{self.eps:g}")

    @abstractmethod
    def chosen(self, worth: Float[Tensor, "b h w"]) -> Float[Tensor, "b 1 h w"]:
        """1 at the allowed places of the largest total worth (>= 0), 0 elsewhere."""

    def shrink(self, delta: Images) -> Images:
        return delta * self.chosen(delta.square().sum(dim=1))

    def project(self, x_adv: Images, x: Images) -> Images:
        near = x_adv.clamp(0, 1)
        saved = (x_adv - x).square() - (x_adv - near).square()
        return torch.where(self.chosen(saved.sum(dim=1)) > 0, near, x)

    def ascent(self, grad: Images) -> Images:
        steepest = _at_largest(grad.abs().sum(dim=1).flatten(1))
        return steepest.view(len(grad), 1, *grad.shape[2:]) * grad.sign()

    def uphill(self, gradient: Images, at: Images) -> Images:
        largest = wide(gradient.abs().flatten(1).amax(dim=1))
        return gradient / torch.where(largest > 0, largest, torch.ones_like(largest))

    def move(self, at: Images, along: Images, length: float | Tensor, x: Images) -> Images:
        step = length / max(self.eps, 1) * along.sign()
        ahead = (at + AHEAD * step).clamp(0, 1)
        worth = (along * (ahead - x)).sum(dim=1)
        return torch.where(self.chosen(worth.clamp_min(0)) > 0, (at + step).clamp(0, 1), x)

    def sample(self, noise: Noise) -> Images:
        changes = 2 * noise.uniform() - 1
        return changes * self.chosen(self._anywhere(noise))

    def _anywhere(self, noise: Noise) -> Float[Tensor, "b h w"]:
        return noise.uniform()[:, 0]


@dataclass(frozen=True)
class L0(_Places):
    """Any eps pixels may take any value, in all channels.

    Examples
    --------
    >>> from rood.threat import L0
    >>> L0(1).shrink(torch.tensor([[[[0.9, 0.5, 0.1]]]])).flatten().tolist()
    [0.8999999761581421, 0.0, 0.0]
    """

    norm: ClassVar[str] = "l0"

    def chosen(self, worth: Float[Tensor, "b h w"]) -> Float[Tensor, "b 1 h w"]:
        flat = worth.flatten(1)
        best = flat.topk(min(int(self.eps), flat.shape[1]), dim=1).indices
        return torch.zeros_like(flat).scatter(1, best, 1.0).view_as(worth)[:, None]

    def size(self, delta: Images) -> Scores:
        return (delta != 0).any(dim=1).flatten(1).sum(dim=1).to(delta.dtype)


@dataclass(frozen=True)
class Patch(_Places):
    """The pixels of one square of eps x eps, at any place, may take any value: a sticker.

    Examples
    --------
    >>> from rood.threat import Patch
    >>> x = torch.zeros(1, 1, 4, 4)
    >>> Patch(2).project(torch.ones(1, 1, 4, 4), x).sum().item()
    4.0
    """

    norm: ClassVar[str] = "patch"

    def chosen(self, worth: Float[Tensor, "b h w"]) -> Float[Tensor, "b 1 h w"]:
        _, h, w = worth.shape
        if self.eps == 0:
            return torch.zeros_like(worth)[:, None]
        side = (min(int(self.eps), h), min(int(self.eps), w))
        total = avg_pool2d(worth.double()[:, None], side, stride=1)  # of each square
        corner = _at_largest(total.flatten(1)).view_as(total)
        # each pixel whose square's upper left corner is at most a side above and left of it
        spread = [side[1] - 1, side[1] - 1, side[0] - 1, side[0] - 1]
        return max_pool2d(torch.nn.functional.pad(corner, spread), side, stride=1).to(worth)

    def _anywhere(self, noise: Noise) -> Float[Tensor, "b h w"]:
        """One pixel, around which the square lies."""
        each = noise.uniform()[:, 0]
        return _at_largest(each.flatten(1)).view_as(each)

    def size(self, delta: Images) -> Scores:
        changed = (delta != 0).any(dim=1)
        sides = [_extent(changed.any(dim=other)) for other in (1, 2)]
        return torch.maximum(*sides).to(delta.dtype)


@dataclass(frozen=True)
class Corrupted(Threat):
    """A common corruption of the image, or none, and then a small change within a norm ball.

    The kind "any" lets the attacker choose among all of `rood.corruptions`. An attack takes the
    corruption that raises its goal most, image by image, and climbs from there: the compositional
    attack of Chen et al., *ATOM: Robustifying Out-of-distribution Detection Using Outlier Mining*,
    arXiv:2006.15207. Written "fog:3+linf:8/255".

    Examples
    --------
    >>> from rood.threat import Corrupted, Linf
    >>> threat = Corrupted(8 / 255, kind="fog", severity=3, ball=Linf)
    >>> str(threat)
    'fog:3+linf:8/255'
    >>> x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> threat.contains(threat.origins(x)[1], x).all().item()
    True
    """

    norm: ClassVar[str] = "corrupted"  # of an object: with kind, severity and ball

    kind: str = "any"
    severity: int = 3
    ball: type[Threat] = Linf

    def __post_init__(self) -> None:
        plain = isinstance(self.ball, type) and self.ball in NORMS.values()
        expect(plain, "one of " + ", ".join(t.__name__ for t in NORMS.values()), self.ball)
        checked(self._kinds()[0], self.severity)
        object.__setattr__(self, "norm", f"{self.kind}:{self.severity}+{self.ball.norm}")
        self.ball(self.eps)  # refuses what is no eps

    @property
    def local(self) -> Threat:
        return self.ball(self.eps)

    def _kinds(self) -> list[str]:
        return names() if self.kind == "any" else [self.kind]

    def origins(self, x: Images) -> tuple[Images, ...]:
        return (x, *(corrupt(x, kind, self.severity) for kind in self._kinds()))

    def nearest(self, x_adv: Images, x: Images) -> Images:
        """The origin that lies nearest to each image."""
        best, least = x, torch.full((len(x),), torch.inf, dtype=x.dtype, device=x.device)
        for origin in self.origins(x):
            off = (self.local.project(x_adv, origin) - x_adv).flatten(1).norm(dim=1)
            best = torch.where(wide(off < least), origin, best)
            least = torch.minimum(off, least)
        return best

    def project(self, x_adv: Images, x: Images) -> Images:
        return self.local.project(x_adv, self.nearest(x_adv, x))

    def contains(self, x_adv: Images, x: Images) -> Bool[Tensor, " b"]:
        inside = [self.local.contains(x_adv, origin) for origin in self.origins(x)]
        return torch.stack(inside).any(dim=0)

    def shrink(self, delta: Images) -> Images:
        return self.local.shrink(delta)

    def ascent(self, grad: Images) -> Images:
        return self.local.ascent(grad)

    def uphill(self, gradient: Images, at: Images) -> Images:
        return self.local.uphill(gradient, at)

    def sample(self, noise: Noise) -> Images:
        return self.local.sample(noise)

    def size(self, delta: Images) -> Scores:
        return self.local.size(delta)


def _least_moved(delta: Images, room: Images, eps: float | Tensor) -> Images:
    """The nearest perturbation of L1 norm eps in which no pixel moves further than its room."""
    size, most = delta.double().abs().flatten(1), room.double().flatten(1)
    total = size.minimum(most).sum(dim=1)
    eps = torch.as_tensor(eps, dtype=torch.float64, device=delta.device).flatten()
    eps = eps.expand(len(delta)).clamp_min(0)
    # sum(min(max(size - t, 0), most)) rises as t falls past size, and stops at size - most
    corners = torch.cat([size, (size - most).clamp_min(-1)], dim=1)
    corners, order = corners.sort(dim=1, descending=True)
    turn = torch.where(order < size.shape[1], 1.0, -1.0).to(size)
    slope = turn.cumsum(dim=1)
    gained = slope[:, :-1] * (corners[:, :-1] - corners[:, 1:])
    reached = torch.nn.functional.pad(gained.cumsum(dim=1), (1, 0))
    last = (reached <= eps[:, None]).sum(dim=1, keepdim=True) - 1
    short = eps[:, None] - reached.gather(1, last)
    t = corners.gather(1, last) - short / slope.gather(1, last).clamp_min(1)
    t = torch.where(total[:, None] <= eps[:, None], torch.zeros_like(t), t.clamp_min(0))
    moved = (size - t).clamp_min(0).minimum(most)
    return moved.view_as(delta).to(delta.dtype) * delta.sign()


def _at_largest(values: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
    """1 at the first largest entry of each row, 0 elsewhere."""
    return torch.zeros_like(values).scatter(1, values.argmax(dim=1, keepdim=True), 1.0)


def _extent(used: Bool[Tensor, "b n"]) -> Tensor:
    """How many entries lie between the first and the last one in use, both included."""
    place = torch.arange(1, used.shape[1] + 1, device=used.device)
    last = (place * used).amax(dim=1)
    first = place.flip(0).mul(used).amax(dim=1)  # counted from the end
    return torch.where(last > 0, last + first - used.shape[1], torch.zeros_like(last))


NORMS: dict[str, type[Threat]] = {t.norm: t for t in (Linf, L2, L1, L0, Patch)}


def parse(text: str) -> Threat:
    """Linf(8/255) from "linf:8/255"; a bare "8/255" means L-infinity.

    "fog:3+linf:8/255" is `Corrupted`: fog of severity 3, then a change of 8/255.

    Examples
    --------
    >>> from rood.threat import parse
    >>> parse("l2:0.5")
    L2(eps=0.5)
    >>> str(parse("4/255"))
    'linf:4/255'
    """
    before, plus, rest = _EXPONENT.sub(r"\1", text).partition("+")
    if plus:
        kind, _, severity = before.strip().partition(":")
        ball = parse(rest)
        what = 'a corruption and a budget such as "fog:3+linf:8/255"'
        expect(severity.isdecimal() and not isinstance(ball, Corrupted), what, repr(text))
        return Corrupted(ball.eps, kind, int(severity), type(ball))
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
    if isinstance(threat, Corrupted):
        return to_8_bit(x_adv, threat.nearest(x_adv, x), threat.local)
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
