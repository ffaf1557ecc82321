"""What somebody's network takes and returns, made into what a `Model` takes and returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rood.errors import CapabilityError, InputError
from rood.models.logits_only import like_of, logits_only
from rood.models.model import Model, kind_of, logits_of
from rood.models.taps import watching
from rood.models.wrap import check_weights, wrap
from rood.shapes import Images, Logits

Shape = tuple[int, int, int]  # channels, height, width
Mode = Literal["nearest", "bilinear", "bicubic"]
LOG = {
    "probabilities": "it returns probabilities, of which the logarithm was taken",
    "log-probabilities": "it returns log-probabilities",
}


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A network as it was found, with what is known about the images it takes."""

    net: nn.Module
    name: str
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    shape: Shape | None = None  # of the images it was made for; None: not known
    mode: Mode = "bilinear"  # how other sizes are brought to that one
    classes: Sequence[str] = ()
    head: str | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for the card

    def build(self, shape: Shape | None = None) -> tuple[Model, dict[str, Any]]:
        """The `Model` for images of `shape`, tried on two of them, and its card."""
        shape = shape or self.shape
        if shape is None:
            raise InputError(
                f"expected the size of the images that {self.name!r} takes, which it does not tell"
            )
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
        """Wrapped with its head where that can be, else by its logits alone; and why."""
        x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(like_of(net))
        mean, std = (
            torch.tensor(v, dtype=x.dtype).view(1, -1, 1, 1) for v in (self.mean, self.std)
        )
        normal = (x - mean.to(x)) / std.to(x)
        notes: tuple[str, ...] = ()
        result = self._tried(net, normal)
        if not isinstance(getattr(result, "logits", result), Tensor):
            net = _Picked(net, _place(net, normal, result))
            notes += (f"of what it returns, {net.place!r} was taken for the logits",)
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
        return self._by_logits(_Opaque(net), z.shape[1], x), (*notes, f"logits alone: {why}")

    def _by_logits(self, net: nn.Module, classes: int, x: Images) -> Model:
        model = logits_only(net, classes, mean=self.mean, std=self.std)
        model.confirm(x)
        return model

    @torch.no_grad()
    def _tried(self, net: nn.Module, x: Images) -> Any:
        try:
            return net(x)
        except Exception as e:  # somebody's forward() raises anything
            raise CapabilityError(
                f"expected {self.name!r} to take images of shape {tuple(x.shape[1:])}, got "
                f"{type(e).__name__}: {_first(e)}: is the size right?"
            ) from e


class _Resized(nn.Module):
    """Images of other sizes are brought to the network's own."""

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
    """One of several things that a network returns."""

    def __init__(self, net: nn.Module, place: int | str) -> None:
        super().__init__()
        self.net = net
        self.place = place

    def forward(self, x: Images) -> Tensor:
        return self.net(x)[self.place]


class _Centred(nn.Module):
    """Log-probabilities moved to mean 0: the same softmax, in numbers that are logits."""

    def __init__(self, net: nn.Module, kind: str) -> None:
        super().__init__()
        self.net = net
        self.kind = kind

    def forward(self, x: Images) -> Logits:
        z = logits_of(self.net(x))
        if self.kind == "probabilities":
            z = z.clamp_min(torch.finfo(z.dtype).tiny).log()
        return z - z.mean(dim=1, keepdim=True)


class _Opaque(nn.Module):
    """Marks a network whose features are not to be had."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Images) -> Any:
        return self.net(x)


def _place(net: nn.Module, x: Images, result: object) -> int | str:
    """Where the logits are: what is called so, what a linear layer gave, or the first candidate."""
    named: dict[int | str, Any] = {}
    if isinstance(result, Mapping):
        named = dict(result)
    elif isinstance(result, tuple | list):
        named = dict(enumerate(result))
    flat = {k: v for k, v in named.items() if isinstance(v, Tensor) and v.ndim == 2}
    if not flat:
        logits_of(result)  # says what was expected
    if "logits" in flat:
        return "logits"
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad(), watching(linear) as seen:
        net(x)
    outputs = [o for s in seen for o in s.outputs]
    made = [k for k, v in flat.items() if any(o.shape == v.shape and o.equal(v) for o in outputs)]
    return (made or list(flat))[0]


def _within(net: nn.Module, inner: nn.Module, head: str | None) -> str | None:
    """The dotted name of a layer of `inner`, seen from `net` around it."""
    if head is None:
        return None
    prefix = next(n for n, m in net.named_modules() if m is inner)
    return f"{prefix}.{head}".lstrip(".")


def _first(e: BaseException) -> str:
    return str(e).strip().splitlines()[0][:200] if str(e).strip() else "no reason given"
