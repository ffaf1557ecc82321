"""Small networks of every layer that certificates cover, with weights that leave nothing at 0."""

import torch
from torch import nn
from torch.nn.functional import pad

from rood.models.wrap import wrap
from rood.seeds import generator

SHAPE = (2, 6, 6)
MEAN, STD = (0.4, 0.5), (0.3, 0.25)


class Residual(nn.Module):
    """A block with a shortcut of its own input, as in a residual network."""

    def __init__(self, before, after):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.more = after - before

    def forward(self, x):
        f = self.conv2(torch.relu(self.norm1(self.conv1(x))))
        return torch.relu(f + pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, self.more - 1)))


class Dense(nn.Module):
    """A block that keeps its input beside new channels."""

    def __init__(self, before, more):
        super().__init__()
        self.norm = nn.BatchNorm2d(before)
        self.conv = nn.Conv2d(before, more, 3, padding=1)

    def forward(self, x):
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], dim=1)


class Different(nn.Module):
    """Sums, differences and factors of maps."""

    def forward(self, x):
        return 1.5 - (x / 2 + 0.1 - torch.relu(x - 0.3) * 2)


def _tail(features):
    return [nn.Flatten(), nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)]


def _smooth(layer):
    convs = (nn.Conv2d(2, 4, 3, stride=2, padding=1), layer, nn.Conv2d(4, 4, 3, padding=1), layer)
    return [*convs, nn.Flatten(), nn.Linear(36, 6), layer, nn.Linear(6, 3)]


NETS = {
    "mlp": lambda: [nn.Flatten(), nn.Linear(72, 10), nn.ReLU(), *_tail(10)[1:]],
    "strides": lambda: [
        *(nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Conv2d(4, 4, 2, padding=1, groups=2, dilation=2), nn.LeakyReLU(0.2)),
        *_tail(36),
    ],
    "residual": lambda: [
        nn.Conv2d(2, 3, 3, padding=1),
        nn.ReLU(),
        Residual(3, 6),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(24, 3)),
    ],
    "dense": lambda: [
        *(nn.Conv2d(2, 3, 3), Dense(3, 2), Dense(5, 2)),
        *(nn.AvgPool2d(3, 2, 1, count_include_pad=False), *_tail(28)),
    ],
    "pools": lambda: [
        *(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.MaxPool2d(3, stride=2, padding=1), nn.Conv2d(4, 4, 2), nn.ReLU()),
        *(nn.MaxPool2d(2, ceil_mode=True, stride=1), *_tail(4)),
    ],
    "silu": lambda: _smooth(nn.SiLU()),
    "gelu": lambda: _smooth(nn.GELU()),
    "sums": lambda: [nn.Conv2d(2, 4, 3), Different(), nn.BatchNorm2d(4), *_tail(64)],
}


def tiny(name, *, scale=1.0):
    """The network, in float64, drawn from a fixed seed; `scale`: of every weight."""
    net = nn.Sequential(*NETS[name]()).double()
    g = generator(0, "tiny", name)
    with torch.no_grad():
        for key, value in net.state_dict().items():
            if value.is_floating_point():
                draw = torch.randn(value.shape, generator=g, dtype=value.dtype)
                fan = max(1, value[0].numel()) if value.ndim > 1 else 4
                value.copy_(scale * draw / fan**0.5)
                if key.endswith("running_var"):
                    value.abs_().add_(0.3)
    return wrap(net, mean=MEAN, std=STD)


def images(n, *, seed=0):
    """Images whose pixels reach from 0 to 1, some of them at either end."""
    x = torch.rand(n, *SHAPE, generator=generator(seed, "tiny images"), dtype=torch.float64)
    return (1.3 * x - 0.15).clamp(0, 1)
