"""A third-party network, adapted to the interface of `Model`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rood.data.base import Shape
from rood.errors import CapabilityError, InputError, expect, first_line
from rood.models.model import Model, kind_of, logits_of
from rood.models.taps import watching
from rood.models.wrap import check_weights, like_of, logits_only, wrap
from rood.shapes import Images, Logits

Mode = Literal["nearest", "bilinear", "bicubic"]
LOG = {
    "probabilities": "it returns probabilities, whose logarithm is used",
    "log-probabilities": "it returns log-probabilities",
}


@dataclass(frozen=True, kw_only=True)
class ForeignNetwork:
    """A third-party network and what its source says about its input."""

    net: nn.Module
    name: str
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    shape: Shape | None = None  # of its input; None: unknown
    mode: Mode = "bilinear"  # how images of other sizes are resized
    classes: Sequence[str] = ()
    head: str | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # further entries of the card

    def build(self, shape: Shape | None = None) -> tuple[Model, dict[str, Any]]:
        """The `Model` for images of `shape`, tested on two random images, and its card."""
        shape = shape or self.shape
        if shape is None:
            raise InputError(
                f"expected the image size for {self.name!r}, which its source does not state"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            what = f"one {name}, or one for each of {shape[0]} channels"
            expect(len(values) in (1, shape[0]), what, len(values))
        check_weights(self.net)
        net = self.net.eval()
        if self.shape is not None:
            net = _Resized(net, self.shape[1:], self.mode)
        model, notes = self._model(net, shape)
        if (named := len(self.classes)) and named != model.classes:
            notes += (f"it names {named} classes and has {model.classes} logits",)
        card = {
            "source": self.name,
            "shape": list(shape),
            "classes": list(self.classes),
            "mean": list(self.mean),
            "std": list(self.std),
            "logits_only": any(isinstance(m, _Opaque) for m in model.modules()),
            "notes": [*self.notes, *notes],
        }
        return model, card | dict(self.facts)

    def _model(self, net: nn.Module, shape: Shape) -> tuple[Model, tuple[str, ...]]:
        """The network wrapped with its head, or else by its logits only, and notes that say why."""
        x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(like_of(net))
        mean, std = (
            torch.tensor(v, dtype=x.dtype).view(1, -1, 1, 1) for v in (self.mean, self.std)
        )
        normal = (x - mean.to(x)) / std.to(x)
        notes: tuple[str, ...] = ()
        result = self._tried(net, normal)
        if not isinstance(getattr(result, "logits", result), Tensor):
            net = _Picked(net, _place(net, normal, result))
            notes += (f"it returns several outputs: {net.place!r} is used as the logits",)
        z = logits_of(self._tried(net, normal))
        if kind := kind_of(z):
            net = _Opaque(_Centred(net, kind))
            why = f"{LOG[kind]}; energy and max_logit are not those of its true logits"
            return self._by_logits(net, z.shape[1], x), (*notes, why)
        options: dict[str, Any] = {"mean": self.mean, "std": self.std}
        why = "no linear layer was found in it"
        if any(isinstance(m, nn.Linear) for m in net.modules()):
            model = wrap(net, head=_within(net, self.net, self.head), **options)
            try:
                model.confirm(x)
                return model, notes
            except CapabilityError as e:
                why = str(e).partition(":")[0]
        return self._by_logits(_Opaque(net), z.shape[1], x), (*notes, f"logits only: {why}")

    def _by_logits(self, net: nn.Module, classes: int, x: Images) -> Model:
        model = logits_only(net, classes, mean=self.mean, std=self.std)
        model.confirm(x)
        return model

    @torch.no_grad()
    def _tried(self, net: nn.Module, x: Images) -> Any:
        try:
            return net(x)
        except Exception as e:  # a third-party forward() may raise anything
            raise CapabilityError(
                f"expected {self.name!r} to take images of shape {tuple(x.shape[1:])}, got "
                f"{type(e).__name__}: {first_line(e)[:200]}: is the size right?"
            ) from e


class _Resized(nn.Module):
    """Resize images of other sizes to the network's own."""

    def __init__(self, net: nn.Module, size: Sequence[int], mode: Mode) -> None:
        super().__init__()
        self.net = net
        self.size = tuple(size)
        self.mode = mode

    def forward(self, x: Images) -> Any:
        if x.shape[-2:] != self.size:
            smooth = self.mode != "nearest"
            x = interpolate(x, self.size, mode=self.mode, antialias=smooth)
        return self.net(x)


class _Picked(nn.Module):
    """One of several outputs of a network."""

    def __init__(self, net: nn.Module, place: int | str) -> None:
        super().__init__()
        self.net = net
        self.place = place

    def forward(self, x: Images) -> Tensor:
        return self.net(x)[self.place]


class _Centred(nn.Module):
    """Log-probabilities shifted to mean 0: the same softmax, in the range of logits."""

    def __init__(self, net: nn.Module, kind: str) -> None:
        super().__init__()
        self.net = net
        self.kind = kind

    def forward(self, x: Images) -> Logits:
        z = logits_of(self.net(x))
        if self.kind == "probabilities":
            z = z.clamp_min(torch.finfo(z.dtype).tiny).log()
        return z - z.mean(dim=1, keepdim=True)


class _Opaque(nn.Sequential):
    """Marks a network whose features cannot be read."""


def _place(net: nn.Module, x: Images, result: object) -> int | str:
    """Key of the logits: "logits", else the output of a linear layer, else the first candidate."""
    named: dict[int | str, Any] = {}
    if isinstance(result, Mapping):
        named = dict(result)
    elif isinstance(result, tuple | list):
        named = dict(enumerate(result))
    flat = {k: v for k, v in named.items() if isinstance(v, Tensor) and v.ndim == 2}
    if not flat:
        logits_of(result)  # raises the error
    if "logits" in flat:
        return "logits"
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad(), watching(linear) as seen:
        net(x)
    outputs = [o for s in seen for o in s.outputs]
    made = [k for k, v in flat.items() if any(o.shape == v.shape and o.equal(v) for o in outputs)]
    return (made or list(flat))[0]


def _within(net: nn.Module, inner: nn.Module, head: str | None) -> str | None:
    """The dotted name in `net` of the layer `head` of `inner`."""
    if head is None:
        return None
    prefix = next(n for n, m in net.named_modules() if m is inner)
    return f"{prefix}.{head}".lstrip(".")
