"""What every architecture offers: images to logits, and the settings that rebuild it."""

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
    """A classifier that ends in one linear layer, `head`.

    Its constructor takes keyword arguments alone and hands every one of them up to this one.
    """

    def __init__(self, *, classes: int, channels: int, **settings: Any) -> None:
        super().__init__()
        if classes < 2 or channels < 1:
            raise InputError(f"expected classes >= 2 and channels >= 1, got {classes}, {channels}")
        self.classes = classes
        self.channels = channels
        self._settings = {"classes": classes, "channels": channels} | settings

    @abstractmethod
    def forward(self, x: Images) -> Logits:
        """Logits of normalised images."""

    @property
    def name(self) -> str:
        """Its registry name: the file it lives in."""
        return type(self).__module__.rpartition(".")[2]

    @final
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, which JSON can hold."""
        parameters = inspect.signature(type(self).__init__).parameters.values()
        return {p.name: self._settings[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}

    @final
    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """Set every weight and statistic."""
        written: set[int] = set()
        for layer in self.modules():
            if self.start(layer, generator):
                written.update(map(id, _own(layer)))
        if left := [n for n, t in self.state_dict(keep_vars=True).items() if id(t) not in written]:
            raise CapabilityError(f"no initial value is known for {', '.join(left)}")

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        """Set what one layer holds itself: He for convolutions, LeCun for linear layers.

        False where no first values are known for it.
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
        """The network with weights trained elsewhere, where `our_name` knows their names."""
        with torch.device("meta"):  # draws nothing from the global generator
            net = cls(**settings)
        net.to_empty(device="cpu")
        wanted = net.state_dict()
        # older files do not count the batches, which only a momentum of None would ask for
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
        """What a tensor is called here that public weights of this architecture call `name`."""
        return name


def _own(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
