"""The toy problem of the checks: three coloured blobs, a small network, easy outliers."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.shapes import Images, Labels

CLASSES = 3
SIZE = 8


@dataclass(frozen=True)
class World:
    """A classifier, its training data, and ID and OOD images."""

    model: Model
    train: list[tuple[Images, Labels]]
    inside: Images
    outside: Images

    def copy(self) -> "World":
        """A deep copy, which a check may modify."""
        return copy.deepcopy(self)

    def double(self) -> "World":
        """A copy in float64."""
        return self._converted(copy.deepcopy(self.model).double(), torch.float64, "cpu")

    def to(self, device: str) -> "World":
        """A copy on another device."""
        return self._converted(copy.deepcopy(self.model).to(device), torch.float32, device)

    def _converted(self, model: Model, dtype: torch.dtype, device: str) -> "World":
        train = [(x.to(device, dtype), y.to(device)) for x, y in self.train]
        inside, outside = (x.to(device, dtype) for x in (self.inside, self.outside))
        return replace(self, model=model, train=train, inside=inside, outside=outside)


def toy_world() -> World:
    """Train the network in under a second, without changing the global RNG state."""
    x, y = blobs(240, seed=1)
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(0)
        net = toy_net()
        _train(net, x, y)
    train = [(x[i : i + 60], y[i : i + 60]) for i in range(0, len(x), 60)]
    model = wrap(net, mean=(0.4,) * 3, std=(0.25,) * 3)
    return World(model, train, blobs(60, seed=2)[0], stripes(60, seed=3))


def toy_net() -> nn.Module:
    """Two convolutions with batch norm; smooth, with positive features as after a ReLU."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Softplus(beta=10),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.Softplus(beta=10),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def blobs(n: int, seed: int) -> tuple[Images, Labels]:
    """A blurred spot on a noisy background, red, green or blue by class."""
    g = generator(seed, "blobs")
    y = torch.arange(n) % CLASSES
    centre = 2.5 + 2 * torch.rand(n, 2, 1, generator=g)  # (n, 2, 1)
    squared = (torch.arange(SIZE) - centre) ** 2  # (n, 2, s): along each side
    spot = torch.exp(-(squared[:, 0, :, None] + squared[:, 1, None, :]) / 8)
    x = 0.25 + 0.05 * torch.randn(n, 3, SIZE, SIZE, generator=g)
    x[torch.arange(n), y] += 0.6 * spot
    return x.clamp(0, 1), y


def stripes(n: int, seed: int) -> Images:
    """Grey stripes with noise."""
    g = generator(seed, "stripes")
    row = torch.arange(SIZE) % 2 * 0.3 + 0.1 * torch.rand(n, 1, 1, 1, generator=g)
    x = 0.2 + row.expand(n, 3, SIZE, SIZE) + 0.05 * torch.randn(n, 3, SIZE, SIZE, generator=g)
    return x.clamp(0, 1)


def _train(net: nn.Module, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        cross_entropy(net((x - 0.4) / 0.25), y).backward()
        optimizer.step()
