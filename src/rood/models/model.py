"""Pixels in, logits and features out, in one forward pass."""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rood.errors import CapabilityError, InputError, expect
from rood.models.taps import last_of_each_size, watching
from rood.registry import unknown
from rood.shapes import Features, Images, Logits


class Outputs(NamedTuple):
    """What one forward pass returns."""

    logits: Logits
    features: Features  # the input of the linear head
    maps: tuple[Tensor, ...] = ()  # feature maps of the layers in `taps`
    keys: Int[Tensor, " b"] | None = None  # in fitting: one hash per image, of its pixels
    head: Float[Tensor, " b"] | None = None  # of the scalar head, where there is one: high for OOD


Network: TypeAlias = Callable[[Images], Outputs]  # a `Model`, or a function around one


def _quickest(x: Images) -> torch.memory_format:
    """The memory format in which convolutions are fastest: channels last for tensor cores."""
    if x.is_cuda and x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda"):
        in_full = not torch.backends.cudnn.allow_tf32
        return torch.contiguous_format if in_full else torch.channels_last
    return torch.channels_last


class Model(nn.Module):
    """An image classifier on pixels in [0, 1]: normalise, encode, classify.

    Normalisation is part of the model, so that a perturbation of 8/255 is 8/255 of the pixel
    range. `head` is the last linear layer; its input is the feature vector.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        net: nn.Module,
        head: nn.Linear,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        *,
        sure: bool = False,  # the caller named the head
    ) -> None:
        super().__init__()
        self.net = net
        self._head = [head]  # in a list, so that it is not registered twice: `net` contains it
        self._sure = sure
        self._confirmed = False
        self._stages: tuple[str, ...] | None = None
        like = head.weight
        for name, values in (("mean", mean), ("std", std)):
            tensor = torch.tensor(values, dtype=like.dtype, device=like.device)
            self.register_buffer(name, tensor.view(1, -1, 1, 1))
        if not (self.std > 0).all():
            raise InputError(f"expected every std > 0, got {tuple(std)}")
        if not ((self.mean >= 0) & (self.mean <= 1)).all() or not (self.std <= 1).all():
            raise InputError(
                "expected mean and std of pixels in [0, 1], got "
                f"{tuple(mean)} and {tuple(std)}: divide those of 8-bit pixels by 255"
            )

    @property
    def head(self) -> nn.Linear:
        """The last linear layer."""
        return self._head[0]

    @property
    def scalar_head(self) -> nn.Linear | None:
        """The layer from the features to one number, high for OOD; None for most networks."""
        found = getattr(self.net, "score", None)
        return found if isinstance(found, nn.Linear) else None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.head.out_features

    def forward(self, x: Images, taps: Sequence[str] = ()) -> Outputs:
        self.confirm(x)
        normal = self._normal(x)
        with watching([self.head, *self.layers(taps)]) as (head, *others):
            logits = logits_of(self.net(normal))
        features = head.inputs[0]
        maps = tuple(m for seen in others for m in seen.outputs)
        scalar = self.scalar_head
        return Outputs(
            logits, features, maps, head=None if scalar is None else scalar(features)[:, 0]
        )

    def _normal(self, x: Images) -> Images:
        normal = (x - self.mean) / self.std
        return normal.contiguous(memory_format=_quickest(normal))

    @torch.no_grad()
    def only(self, classes: Sequence[int], x: Images) -> "Model":
        """A copy with some of the outputs, those rows of the head; `x`: images to check it on."""
        before, which = self(x).logits, list(classes)  # this also finds the head
        made = copy.deepcopy(self)
        made.head.weight = nn.Parameter(self.head.weight[which].clone(), requires_grad=False)
        if self.head.bias is not None:
            made.head.bias = nn.Parameter(self.head.bias[which].clone(), requires_grad=False)
        made.head.out_features, made._confirmed = len(which), False
        try:
            same = torch.allclose(made(x).logits, before[:, which], rtol=1e-4, atol=1e-5)
        except (RuntimeError, ValueError):  # what lies behind the head expects all outputs
            same = False
        if not same:
            raise CapabilityError(
                "expected a network that works with some rows of its head alone, got "
                f"{type(self.net).__name__}: give one that was trained on these classes only"
            )
        return made

    def layers(self, names: Sequence[str]) -> list[nn.Module]:
        """The layers of the network with these dotted names."""
        if not names:
            return []
        known = dict(self.net.named_modules())
        for name in names:
            if name not in known:
                raise unknown("layer", name, known)
        return [known[name] for name in names]

    @torch.no_grad()
    def stages(self, x: Images) -> tuple[str, ...]:
        """The last layer at each resolution of the feature maps, in order of execution."""
        if self._stages is None:
            normal = (x[:2] - self.mean) / self.std
            self._stages = last_of_each_size(self.net, lambda: self.net(normal))
        return self._stages

    def fingerprint(self) -> str:
        """SHA-256 of all weights, mean and std."""
        digest = hashlib.sha256()
        for name, value in sorted(self.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    @torch.no_grad()
    def confirm(self, x: Images) -> None:
        """Check on the first batch that the head produces the logits, and that they are logits."""
        if self._confirmed:
            return
        channels, given = x.shape[1], max(self.mean.numel(), self.std.numel())
        what = f"one mean and std, or one for each of {channels} channels"
        expect(given in (1, channels), what, given)
        normal = self._normal(x)
        linear = {n: m for n, m in self.net.named_modules() if isinstance(m, nn.Linear)}
        modes = [(m, m.training) for m in self.net.modules()]
        self.net.eval()  # batch-norm statistics must not change
        try:
            with watching(list(linear.values())) as seen:
                logits = logits_of(self.net(normal))
        finally:
            for module, mode in modes:
                module.training = mode
        makers = [
            m
            for m, s in zip(linear.values(), seen, strict=True)
            if any(_same(out, logits) for out in s.outputs)
        ]
        if makers and self.head not in makers:
            self._replace_head(linear, makers[-1])
        if len(logits) == 0:
            return  # an empty batch confirms nothing
        check_logits(logits)
        if not makers:
            raise CapabilityError(
                "expected the logits to come straight from a linear layer, but none of "
                f"{', '.join(linear)} returns them: wrap the network without what follows its "
                "head, or use rood.models.wrap.logits_only for detectors that read logits only"
            )
        features = seen[list(linear.values()).index(self.head)].inputs[0]
        if features.ndim != 2:
            raise CapabilityError(
                f"expected one feature vector per image, got {tuple(features.shape)}: "
                "pool before the head"
            )
        self._confirmed = True

    def _replace_head(self, linear: Mapping[str, nn.Module], maker: nn.Linear) -> None:
        if self._sure:
            given, right = (n for h in (self.head, maker) for n, m in linear.items() if m is h)
            raise CapabilityError(
                f"expected the logits to come from the layer named, {given!r}, but they come from "
                f"{right!r}: name that one"
            )
        self._head = [maker]


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def logits_of(result: object) -> Logits:
    """The logits among what a network returned."""
    logits = getattr(result, "logits", result)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(result).__name__
        raise CapabilityError(f"expected the network to return logits (b, k), got {got}")
    return logits


def check_logits(logits: Float[Tensor, "b k"]) -> None:
    """Refuse probabilities and log-probabilities: scores would apply softmax twice."""
    logits = logits.double()  # bfloat16 under autocast
    if not logits.isfinite().all():
        raise InputError("expected finite logits, got NaN or infinity: are the weights damaged?")
    if logits.shape[1] < 2:
        raise CapabilityError(f"expected at least 2 classes, got {logits.shape[1]}")
    if (kind := kind_of(logits)) is not None:
        sign, layer = {
            "probabilities": ("rows are >= 0 and sum to 1", "softmax"),
            "log-probabilities": ("their exponentials sum to 1", "log-softmax"),
        }[kind]
        raise InputError(
            f"expected logits, got {kind} ({sign}): wrap the network without its {layer}"
        )


def kind_of(logits: Float[Tensor, "b k"]) -> Literal["probabilities", "log-probabilities"] | None:
    """What a network returns instead of logits; None if these are logits."""
    z = logits.double()
    one = torch.ones_like(z[:, 0])
    if z.shape[1] > 1 and (z >= 0).all() and torch.allclose(z.sum(dim=1), one, atol=1e-4):
        return "probabilities"
    if z.shape[1] > 1 and torch.allclose(z.logsumexp(dim=1), 0 * one, atol=1e-4):
        return "log-probabilities"
    return None
