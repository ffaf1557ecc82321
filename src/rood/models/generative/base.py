"""What every network has that learns how images look, and not what they show."""

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
    """A network with a code for each image; `head`, a linear probe, reads the class from the code.

    The probe is trained beside the network and has no influence on it; with it, such a network is a
    `Model` like any other. It takes pixels in [0, 1] as they are: mean 0 and std 1.
    """

    head: nn.Linear

    @abstractmethod
    def code(self, x: Images) -> Features:
        """What the probe reads."""

    def forward(self, x: Images) -> Logits:
        return self.head(self.code(x))

    def settle(self, x: Images, noise: Generator) -> None:
        """Before the first step: set what depends on the images to come, of which x are some."""

    @classmethod
    def of(cls: type[G], model: Model) -> G:
        """The network of this kind that a model has."""
        if not isinstance(model.net, cls):
            name = cls.__module__.rpartition(".")[2]
            raise CapabilityError(
                f"expected a model with the network {name!r}, got {type(model.net).__name__}: "
                f'train one with backbone = "{name}"'
            )
        return model.net

    @classmethod
    def on_plain_pixels(cls: type[G], model: Model) -> G:
        """The same, and refuse a model that changes the pixels before its network sees them."""
        net = cls.of(model)
        if bool((model.mean != 0).any()) or bool((model.std != 1).any()):
            mean, std = model.mean.flatten().tolist(), model.std.flatten().tolist()
            raise InputError(
                f"expected mean 0 and std 1 around {type(net).__name__}, got {mean} and {std}"
            )
        return net

    @classmethod
    def beside(cls, model: Model, **settings: Any) -> Model:
        """An untrained one for the images and classes of a classifier, for the contract checks."""
        first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
        channels = model.mean.shape[1] if first is None else first.in_channels
        if isinstance(model.net, Backbone):
            channels = model.net.channels
        with torch.device("meta"):  # draws nothing from the global generator
            net = cls(classes=model.classes, channels=channels, **settings)
        net.to_empty(device="cpu").initialise(generator(0, "weights", net.name))
        return wrap(net.to(model.mean), head="head")
