"""What experiments run on: networks by role, image sets by name, and how many of everything."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from rood import data
from rood.data.base import ImageSet, Shape
from rood.detectors import Detector, score_all
from rood.errors import CapabilityError, CheckpointError, DataError, UnknownNameError
from rood.models import checkpoint, zoo
from rood.models.backbones import DenseNetBC
from rood.models.load import find_network, has_card, load_network
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.shapes import Images, Scores

T = TypeVar("T")

BATCH = 1000  # images per forward pass
ALL = 10**9  # more than any set has
IMAGENET: Shape = (3, 224, 224)  # for a network that does not say what it takes


class NotRun(Exception):
    """A network or image set is missing: the cells say so and carry no number."""


@dataclass(frozen=True)
class Size:
    """How much of a paper's experiment is run."""

    name: str
    images: int | None  # per side, under the papers' attacks; None: all there are
    standard: int  # per side, under our suite
    fit: int | None  # to fit detectors on
    most_steps: int | None  # of an attack; None: as many as the paper takes

    @property
    def tiny(self) -> bool:
        """Whether only what shows that everything runs is computed."""
        return self.name == "tiny"

    def steps(self, n: int) -> int:
        """The paper's n steps, or as many as this size allows."""
        return n if self.most_steps is None else min(n, self.most_steps)


SIZES = {
    s.name: s
    for s in (
        Size("tiny", images=32, standard=4, fit=300, most_steps=3),
        Size("small", images=1000, standard=200, fit=5000, most_steps=None),
        Size("paper", images=None, standard=1000, fit=None, most_steps=None),
    )
}


@dataclass(frozen=True, eq=False)
class Network:
    """A network on the device, and notes for the reader."""

    model: Model
    name: str
    shape: Shape


@dataclass(eq=False)
class Context:
    """Size, device and sources; every network and image set is read once."""

    size: Size
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    models: Mapping[str, str] = field(default_factory=dict)  # --model: role -> source
    data: Mapping[str, str] = field(default_factory=dict)  # --data: name -> source
    zoo: Path | None = None  # a folder of networks that goes before the shipped ones
    out: Path = Path()  # where files beside the rows go
    seed: int = 0
    tf32: bool = False  # convolutions on a GPU in TF32: several times faster
    _networks: dict[str, Network] = field(default_factory=dict)
    _sets: dict[str, ImageSet] = field(default_factory=dict)
    _memory: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def network(self, role: str) -> Network:
        """The network in a role such as "cifar10/aloe"; NotRun where there is none."""
        if role not in self._networks:
            self._networks[role] = self._placed(_read_network(role, self.models, self.zoo))
        return self._networks[role]

    def train(self, role: str, make: Callable[[Path], None]) -> None:
        """Have `make` write a network for this role beside the rows, unless it is there."""
        folder = self.out / "networks"
        path = folder / f"{role.replace('/', '-')}.safetensors"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            make(path)
        self._networks[role] = self._placed(_read_network(role, {}, folder))

    def images(
        self, name: str, *, shape: Shape | None = None, limit: int | None = None
    ) -> ImageSet:
        """A set such as "cifar10/test", at most `limit` images (None: what the size says)."""
        if name not in self._sets:
            self._sets[name] = _read_images(name, self.data)
        return self._sets[name].thin(limit or self.size.images).to_shape(shape)

    def fit_images(self, name: str, *, shape: Shape | None = None) -> ImageSet:
        """Images such as "cifar10/fit" to fit detectors on, equally many of every class."""
        self.images(name, limit=1)
        return _even(self._sets[name], self.size.fit).to_shape(shape)

    def all_fit_images(self, name: str, *, shape: Shape | None = None) -> ImageSet:
        """All images to fit detectors on; at tiny those of `fit_images`."""
        if self.size.tiny:
            return self.fit_images(name, shape=shape)
        return self.images(name, shape=shape, limit=ALL)

    def pixels(self, name: str, *, shape: Shape | None = None, limit: int | None = None) -> Images:
        """The pixels of `images` on the device."""
        return self.remember(
            ("pixels", name, shape, limit),
            lambda: self.images(name, shape=shape, limit=limit).pixels(self.device),
        )

    def has(self, *names: str) -> bool:
        """Whether all of these sets can be read."""
        try:
            return all(len(self.images(n, limit=1)) for n in names)
        except NotRun:
            return False

    def has_network(self, role: str) -> bool:
        """Whether there is a network for this role."""
        try:
            return self.network(role) is not None
        except NotRun:
            return False

    def remember(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result of `make`, computed once per key and shared by all experiments."""
        if key not in self._memory:
            self._memory[key] = make()
        found: T = self._memory[key]
        return found

    def generator(self, *purpose: str | int) -> torch.Generator:
        """Random draws for one purpose, whatever ran before."""
        return generator(self.seed, *purpose)

    @torch.no_grad()
    def scores(self, detectors: Mapping[str, Detector], x: Images) -> dict[str, Scores]:
        """Every detector's scores on the CPU; detectors of one network share forward passes."""
        parts = [score_all(detectors, b) for b in x.split(BATCH)]
        return {n: torch.cat([p[n] for p in parts]).cpu() for n in detectors}

    def _placed(self, network: Network) -> Network:
        return replace(network, model=network.model.to(self.device))


def in_batches(function: Callable[[Images], Tensor], x: Images) -> Tensor:
    """The function of many images, `BATCH` at a time."""
    return torch.cat([function(b) for b in x.split(BATCH)])


def _even(images: ImageSet, limit: int | None) -> ImageSet:
    """At most `limit` images, the first of every class before the second of any."""
    if images.labels is None or limit is None or limit >= len(images):
        return images.thin(limit)
    y = images.labels
    turn = torch.zeros_like(y)
    for c in y.unique():
        mine = y == c
        turn[mine] = torch.arange(int(mine.sum()))
    return images.take(turn.argsort(stable=True)[:limit])


@cache
def _known_images() -> dict[str, list[str]]:
    return tomllib.loads((files(__package__) / "images.toml").read_text(encoding="utf-8"))


def _read_images(name: str, given: Mapping[str, str]) -> ImageSet:
    """A set by its name in images.toml, or from the source given for it."""
    specs = [given[name]] if name in given else _known_images().get(name, [name])
    for spec in specs:
        try:
            return data.load(spec)
        except (DataError, UnknownNameError, CapabilityError) as e:
            if name in given:  # the user's own mistake is an error
                raise
            reason = e
    raise NotRun("no data") from reason


_THEIRS = {  # networks of the papers ODIN and Mahalanobis, and of OECC
    f"{data}/{name}": f"{file}_densenet100_{data}"
    for data in ("cifar10", "cifar100")
    for name, file in (("odin-densenet", "odin"), ("oecc-densenet", "oecc"))
}
_MEAN = tuple(v / 255 for v in (125.3, 123.0, 113.9))
_STD = tuple(v / 255 for v in (63.0, 62.1, 66.7))


def _read_network(role: str, given: Mapping[str, str], folder: Path | None) -> Network:
    """A network by its role: "cifar10/aloe" is the zoo's cifar10-aloe."""
    if role in given:
        return _from_source(given[role])
    if role in _THEIRS:
        return _densenet(_THEIRS[role])
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


def _from_source(spec: str) -> Network:
    if has_card(spec):
        model, card = load_network(spec)
    else:
        found = find_network(spec)
        model, card = found.build(found.shape or IMAGENET)
    return _named(model, card, Path(spec).stem if "/" in spec else spec)


def _densenet(name: str) -> Network:
    folder = os.environ.get("ROOD_DATA", "")
    path = Path(folder) / "weights" / f"{name}.pt"
    if not folder or not path.is_file():
        raise NotRun("no weights")
    try:
        state = checkpoint.load_state(path)
    except CheckpointError as e:
        raise NotRun("no weights") from e
    head = next(v for k, v in reversed(state.items()) if k.endswith("weight") and v.ndim == 2)
    net = DenseNetBC.from_state(state, classes=len(head))
    return Network(wrap(net, head="head", mean=_MEAN, std=_STD), name, (3, 32, 32))
