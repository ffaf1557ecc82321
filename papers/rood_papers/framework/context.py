"""The one way by which experiments come to networks and images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from rood.data.base import ImageSet, Shape
from rood.detectors import score_all
from rood.detectors.base import Detector
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood_papers.framework.size import Size
from rood_papers.framework.sources import Network, NotRun, on, read_images, read_network

__all__ = ["ALL", "BATCH", "Context", "Network", "NotRun"]

T = TypeVar("T")

BATCH = 1000  # images at once
ALL = 10**9  # more than any set has


@dataclass(eq=False)
class Context:
    """Size, device, sources; every network and set is read once and remembered."""

    size: Size
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    models: Mapping[str, str] = field(default_factory=dict)  # role -> source, given by hand
    data: Mapping[str, str] = field(default_factory=dict)  # name -> source, given by hand
    zoo: Path | None = None  # a folder of networks that goes before the shipped ones
    out: Path = Path()  # where files beside the rows go
    seed: int = 0
    tf32: bool = False  # convolutions of a GPU in 19 bits: several times faster
    _networks: dict[str, Network] = field(default_factory=dict)
    _sets: dict[str, ImageSet] = field(default_factory=dict)
    _memory: dict[tuple[object, ...], Any] = field(default_factory=dict)
    _pixels: dict[tuple[str, Shape | None, int | None], Images] = field(default_factory=dict)

    def network(self, role: str) -> Network:
        """The network that plays a role such as "cifar10/aloe"; NotRun where there is none."""
        if role not in self._networks:
            found = read_network(role, dict(self.models), self.zoo)
            self._networks[role] = on(found, self.device)
        return self._networks[role]

    def train(self, role: str, make: Callable[[Path], None]) -> None:
        """Have `make` write a network for this role among the results, unless it is there."""
        folder = self.out / "networks"
        path = folder / f"{role.replace('/', '-')}.safetensors"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            make(path)
        self._networks[role] = on(read_network(role, {}, folder), self.device)

    def images(
        self, name: str, *, shape: Shape | None = None, limit: int | None = None
    ) -> ImageSet:
        """A set such as "cifar10/test", at most `limit` images (None: what the size says)."""
        if name not in self._sets:
            self._sets[name] = read_images(name, dict(self.data))
        return self._sets[name].thin(limit or self.size.images).to_shape(shape)

    def fit_images(self, name: str, *, shape: Shape | None = None) -> ImageSet:
        """The images that detectors learn from, every class as often: "cifar10/fit"."""
        self.images(name, limit=1)
        return _even(self._sets[name], self.size.fit).to_shape(shape)

    def all_fit_images(self, name: str, *, shape: Shape | None = None) -> ImageSet:
        """The same, but for `tiny` all there are."""
        if self.size.name == "tiny":
            return self.fit_images(name, shape=shape)
        return self.images(name, shape=shape, limit=ALL)

    def pixels(self, name: str, *, shape: Shape | None = None, limit: int | None = None) -> Images:
        """The same as `images`, in [0, 1] on the device."""
        key = name, shape, limit
        if key not in self._pixels:
            self._pixels[key] = self.images(name, shape=shape, limit=limit).pixels(self.device)
        return self._pixels[key]

    def has(self, *names: str) -> bool:
        """Whether all of these sets can be read."""
        try:
            return all(len(self.images(n, limit=1)) for n in names)
        except NotRun:
            return False

    def has_network(self, role: str) -> bool:
        """Whether a network plays this role."""
        try:
            return self.network(role) is not None
        except NotRun:
            return False

    def remember(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gave for this key before, or gives now: shared by all experiments."""
        if key not in self._memory:
            self._memory[key] = make()
        found: T = self._memory[key]
        return found

    def generator(self, *purpose: str | int) -> torch.Generator:
        """Draws for one purpose, whatever ran before."""
        return generator(self.seed, *purpose)

    @torch.no_grad()
    def scores(self, detectors: Mapping[str, Detector], x: Images) -> dict[str, Scores]:
        """Every detector's scores on the CPU; those of one network share forward passes."""
        parts = [score_all(detectors, b) for b in x.split(BATCH)]
        return {n: torch.cat([p[n] for p in parts]).cpu() for n in detectors}


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
