"""The base class of architectures: images to logits, and settings that rebuild the network."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, final

import torch
from torch import Generator, Tensor, nn

from rood.errors import CapabilityError, CheckpointError, InputError
from rood.shapes import Images, Logits

B = TypeVar("B", bound="Backbone")


class Backbone(nn.Module, ABC):
    """A classifier that ends in a linear layer, `head`.

    The constructor takes keyword arguments only, from which `settings` rebuilds the network.
    """

    _settings: dict[str, Any]

    def __new__(cls: type[B], *_: Any, **given: Any) -> B:
        """Record the keyword arguments of the constructor, with their defaults."""
        net = super().__new__(cls)
        named = inspect.signature(cls.__init__).parameters.values()
        keywords = (p for p in named if p.kind is p.KEYWORD_ONLY)
        net.__dict__["_settings"] = {p.name: given.get(p.name, p.default) for p in keywords}
        return net

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__()
        if classes < 2 or channels < 1:
            raise InputError(f"expected classes >= 2 and channels >= 1, got {classes}, {channels}")
        self.classes = classes
        self.channels = channels

    @abstractmethod
    def forward(self, x: Images) -> Logits:
        """Logits of normalised images."""

    @final
    def add_score(self, score: nn.Linear | None = None) -> None:
        """Add a scalar head on the features, `score`, that tells ID from OOD."""
        if not isinstance(head := getattr(self, "head", None), nn.Linear):
            raise CapabilityError(f"expected a linear head beside a scalar one in {self.name}")
        self.score = nn.Linear(head.in_features, 1) if score is None else score
        self._settings["scored"] = True

    @property
    def name(self) -> str:
        """The registry name, which is the file name."""
        return type(self).__module__.rpartition(".")[2]

    @final
    def settings(self) -> dict[str, Any]:
        """The arguments of the constructor, JSON-serialisable."""
        return dict(self._settings)

    @final
    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """Set every weight and buffer."""
        written: set[int] = set()
        for layer in self.modules():
            if self.start(layer, generator):
                written.update(map(id, _own(layer)))
        if left := [n for n, t in self.state_dict(keep_vars=True).items() if id(t) not in written]:
            raise CapabilityError(f"no initial value is known for {', '.join(left)}")

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        """Initialise one layer: He for convolutions, LeCun for linear layers.

        Returns False for a layer of unknown type.
        """
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        elif isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            layer.weight.uniform_(-bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            layer.reset_parameters()
        else:
            return False
        if getattr(layer, "bias", None) is not None:
            layer.bias.zero_()  # type: ignore[union-attr]
        return True

    @final
    @classmethod
    def from_state(cls: type[B], state: Mapping[str, Tensor], **settings: Any) -> B:
        """The network with third-party weights, renamed by `our_name`."""
        with torch.device("meta"):  # does not use the global RNG
            net = cls(**settings)
        net.to_empty(device="cpu")
        wanted = net.state_dict()
        # older files lack the batch counters, which only momentum=None needs
        counters = {n: torch.tensor(0) for n in wanted if n.endswith("num_batches_tracked")}
        given = counters | {net.our_name(n): t for n, t in state.items()}
        want, got = ({n: tuple(t.shape) for n, t in s.items()} for s in (wanted, given))
        for n in sorted(want | got):
            if want.get(n) != got.get(n):
                raise CheckpointError(
                    f"expected {n!r} of shape {want.get(n)} for a {cls.__name__}, got {got.get(n)}:"
                    " other settings or another network?"
                )
        net.load_state_dict(given)
        return net

    def our_name(self, name: str) -> str:
        """Our name of the tensor that public weights of this architecture call `name`."""
        return name


def _own(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
