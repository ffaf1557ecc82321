"""The base class of generative networks."""

from abc import abstractmethod
from typing import Any, TypeVar

import torch
from torch import Generator, nn

from rood.errors import CapabilityError, InputError
from rood.models.backbones.base import Backbone
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.shapes import Features, Images, Logits

G = TypeVar("G", bound="Generative")


class Generative(Backbone):
    """A network with a code for each image; `head` is a linear probe from code to class.

    The probe makes the network a `Model` like any other; it is trained along with the network
    without influencing it. Pixels are not normalised: mean 0 and std 1.
    """

    head: nn.Linear

    @abstractmethod
    def code(self, x: Images) -> Features:
        """The input of the probe."""

    def forward(self, x: Images) -> Logits:
        return self.head(self.code(x))

    def settle(self, x: Images, noise: Generator) -> None:
        """Initialise what depends on the data, from a first batch x."""

    @classmethod
    def of(cls: type[G], model: Model) -> G:
        """The network inside a model, which must be of this class."""
        if not isinstance(model.net, cls):
            name = cls.__module__.rpartition(".")[2]
            raise CapabilityError(
                f"expected a model with the network {name!r}, got {type(model.net).__name__}: "
                f'train one with backbone = "{name}"'
            )
        return model.net

    @classmethod
    def on_plain_pixels(cls: type[G], model: Model) -> G:
        """As `of`; refuses a model that normalises the pixels."""
        net = cls.of(model)
        if bool((model.mean != 0).any()) or bool((model.std != 1).any()):
            mean, std = model.mean.flatten().tolist(), model.std.flatten().tolist()
            raise InputError(
                f"expected mean 0 and std 1 around {type(net).__name__}, got {mean} and {std}"
            )
        return net

    @classmethod
    def beside(cls, model: Model, **settings: Any) -> Model:
        """An untrained network for the images and classes of a classifier, for contract checks."""
        first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
        channels = model.mean.shape[1] if first is None else first.in_channels
        if isinstance(model.net, Backbone):
            channels = model.net.channels
        with torch.device("meta"):  # does not use the global RNG
            net = cls(classes=model.classes, channels=channels, **settings)
        net.to_empty(device="cpu").initialise(generator(0, "weights", net.name))
        return wrap(net.to(model.mean), head="head")
