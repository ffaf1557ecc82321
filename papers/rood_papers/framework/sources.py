"""Where the networks and images of the experiments come from, unless somebody says otherwise."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rood import data
from rood.data.base import ImageSet, Shape
from rood.errors import CapabilityError, CheckpointError, DataError, UnknownNameError
from rood.models import checkpoint, zoo
from rood.models.backbones.densenet_bc import DenseNetBC
from rood.models.load import find_network, has_card, load_network
from rood.models.model import Model
from rood.models.wrap import wrap


class NotRun(Exception):
    """Something is not to be had here: the cells say so and carry no number."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network on the device, and what a reader must know of it."""

    model: Model
    name: str
    shape: Shape
    note: str = ""


_PACK = "npz:$ROOD_DATA/{}.npz"
_CIFAR10 = _PACK.format("cifar10_test")
_CIFAR100 = _PACK.format("cifar100_test")
_SVHN = _PACK.format("svhn_test5k")

# the first that can be read; with all of CIFAR-10 at hand none of its test images is learnt from
IMAGES: dict[str, tuple[str, ...]] = {
    "cifar10/fit": ("cifar10:train", f"share:0-0.4@{_CIFAR10}"),
    "cifar10/test": ("cifar10:test", f"share:0.4-1@{_CIFAR10}"),
    "cifar10/validation": ("share:0-0.1@cifar10:test", f"share:0.4-0.5@{_CIFAR10}"),
    "cifar10/judged": ("share:0.1-1@cifar10:test", f"share:0.5-1@{_CIFAR10}"),
    "cifar100/fit": (_PACK.format("cifar100_train25k"),),
    "cifar100/test": (_CIFAR100,),
    "cifar100/validation": (f"share:0-0.1@{_CIFAR100}",),
    "cifar100/judged": (f"share:0.1-1@{_CIFAR100}",),
    "gtsrb/fit": (_PACK.format("gtsrb_train8k"),),
    "gtsrb/test": (_PACK.format("gtsrb_test5k"),),
    "svhn/fit": (f"share:0-0.8@{_SVHN}",),
    "svhn/test": (f"share:0.8-1@{_SVHN}",),
    "svhn": (_SVHN,),
    "dtd": (_PACK.format("dtd10_32"),),
    "scenes": (_PACK.format("scenes6_32"),),
    "tiny-imagenet": (_PACK.format("tinyimagenet_val_32"),),
    "tiny-imagenet/tuning": (_PACK.format("tinyimagenet_train5k_32"),),
    "mnist": (_PACK.format("mnist_test"),),
    "fashion-mnist": (_PACK.format("fashion_mnist_test"),),
    "notmnist": (_PACK.format("notmnist_small"),),
    "chestxray": (_PACK.format("chestxray_test64"),),
    "lung-ct": (_PACK.format("lung_ct64"),),
    "imagenet": (_PACK.format("imagenet250_sample224"),),
    "digits/fit": ("share:0-0.6@digits:inside",),  # what the digits' networks were trained on
    "digits/test": ("share:0.6-1@digits:inside",),
    "digits/validation": ("share:0.6-0.7@digits:inside",),
    "digits/judged": ("share:0.7-1@digits:inside",),
    "digits/near": ("digits:near",),
    "digits/patches": ("digits:patches",),
    "digits/noise": ("digits:noise",),
    "digits/tuning": ("digits:outliers",),
}

_ODIN = {  # the networks of the papers ODIN and Mahalanobis, and of OECC
    f"{data}/{name}": f"{file}_densenet100_{data}"
    for data in ("cifar10", "cifar100")
    for name, file in (("odin-densenet", "odin"), ("oecc-densenet", "oecc"))
}
IMAGENET: Shape = (3, 224, 224)  # for a network that does not say what it takes
_MEAN = tuple(v / 255 for v in (125.3, 123.0, 113.9))
_STD = tuple(v / 255 for v in (63.0, 62.1, 66.7))


def read_images(name: str, given: dict[str, str]) -> ImageSet:
    """A set by its name here, or from the source that was given for it."""
    specs = (given[name],) if name in given else IMAGES.get(name, (name,))
    for spec in specs:
        try:
            return data.load(spec)
        except (DataError, UnknownNameError, CapabilityError) as e:
            if name in given:  # asked for by hand: a mistake is not passed over
                raise
            reason = e
    raise NotRun("no data") from reason


def read_network(role: str, given: dict[str, str], folder: Path | None) -> Network:
    """A network by its role: "cifar10/aloe" is the zoo's cifar10-aloe."""
    if role in given:
        return _other(given[role])
    if role in _ODIN:
        return _densenet(role)
    name = role.replace("/", "-")
    try:
        if folder is not None and (folder / f"{name}.safetensors").is_file():
            path = folder / f"{name}.safetensors"
            return _named(checkpoint.load(path), checkpoint.read_card(path), name)
        return _named(zoo.load(name), zoo.card(name), name)
    except UnknownNameError as e:
        raise NotRun(f"no network {name}") from e


def _named(model: Model, card: dict[str, Any], name: str) -> Network:
    c, h, w = card["shape"]
    return Network(model, name, (c, h, w))


def _other(spec: str) -> Network:
    if has_card(spec):
        model, card = load_network(spec)
    else:
        found = find_network(spec)
        model, card = found.build(found.shape or IMAGENET)
    c, h, w = card["shape"]
    return Network(model, Path(spec).stem if "/" in spec else spec, (c, h, w))


def _densenet(role: str) -> Network:
    folder = os.environ.get("ROOD_DATA", "")
    path = Path(folder) / "weights" / f"{_ODIN[role]}.pt"
    if not folder or not path.is_file():
        raise NotRun("no weights")
    try:
        state = checkpoint.load_state(path)
    except CheckpointError as e:
        raise NotRun("no weights") from e
    head = next(v for k, v in reversed(state.items()) if k.endswith("weight") and v.ndim == 2)
    net = DenseNetBC.from_state(state, classes=len(head))
    return Network(wrap(net, head="head", mean=_MEAN, std=_STD), _ODIN[role], (3, 32, 32))


def on(network: Network, device: torch.device) -> Network:
    """The same on another device."""
    return Network(network.model.to(device), network.name, network.shape, network.note)
