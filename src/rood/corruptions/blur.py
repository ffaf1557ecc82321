"""Blurs: out of focus, in motion, while zooming."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, pad

from rood.seeds import Noise
from rood.shapes import Images, Scores

TRUNCATED = 4  # standard deviations of a Gaussian that is cut off


def gaussian(x: Images, sigma: float, draws: Callable[[Images], Noise]) -> Images:
    """Convolution with a Gaussian."""
    radius = int(TRUNCATED * sigma + 0.5)
    line = _bell(radius, sigma).to(x)
    return _filtered(_filtered(x, line[None], "replicate"), line[:, None], "replicate")


def defocus(x: Images, strength: tuple[float, float], draws: Callable[[Images], Noise]) -> Images:
    """Convolution with a disk, its edge smoothed by a small Gaussian."""
    radius, sigma = strength
    side = 1 if radius <= 8 else 2
    reach = math.floor(radius) + side
    place = torch.arange(-reach, reach + 1)
    disk = (place[:, None] ** 2 + place[None] ** 2 <= radius**2).double()
    edge = _bell(side, sigma)
    smooth = conv2d(disk[None, None], torch.outer(edge, edge)[None, None], padding=side)[0, 0]
    return _filtered(x, (smooth / smooth.sum()).to(x), "reflect")


def motion(x: Images, strength: tuple[float, float], draws: Callable[[Images], Noise]) -> Images:
    """A one-sided Gaussian along a line of random angle within 45 degrees of the horizontal."""
    angle = 90 * draws(x).uniform_scalar().flatten() - 45
    return along(x, *strength, angle)


def along(x: Images, radius: float, sigma: float, degrees: Scores) -> Images:
    """x moving in a direction for each image, as ImageMagick's motion blur does it."""
    steps = int(2 * radius + 1)
    weights = (-(torch.arange(steps).double() ** 2) / (2 * sigma**2)).exp()
    weights = weights / weights.sum()
    turn = degrees.double() * math.pi / 180
    b, c, h, w = x.shape
    rows, columns = torch.arange(h, device=x.device), torch.arange(w, device=x.device)
    found = torch.zeros_like(x)
    for i, weight in enumerate(weights.tolist()):
        down, right = ((i * v - 0.5).ceil().long() for v in (turn.sin(), turn.cos()))
        row = (rows + down[:, None]).clamp(0, h - 1)[:, None, :, None].expand(b, c, h, w)
        column = (columns + right[:, None]).clamp(0, w - 1)[:, None, None].expand(b, c, h, w)
        found += weight * x.gather(2, row).gather(3, column)
    return found


def zoom(x: Images, strength: tuple[int, float], draws: Callable[[Images], Noise]) -> Images:
    """The mean of the image and of enlargements of it by 1, 1 + step, ..."""
    steps, size = strength
    zoomed = [enlarged(x, 1 + i * size) for i in range(steps)]
    return (x + sum(zoomed, torch.zeros_like(x))) / (steps + 1)


def enlarged(x: Images, factor: float) -> Images:
    """The middle of each image, enlarged to the size of the whole."""
    h, w = x.shape[-2:]
    ch, cw = math.ceil(h / factor), math.ceil(w / factor)
    top, left = (h - ch) // 2, (w - cw) // 2
    middle = x[..., top : top + ch, left : left + cw]
    size = (max(h, round(ch * factor)), max(w, round(cw * factor)))
    large = interpolate(middle, size=size, mode="bilinear", align_corners=True)
    top, left = (size[0] - h) // 2, (size[1] - w) // 2
    return large[..., top : top + h, left : left + w]


def _bell(radius: int, sigma: float) -> Tensor:
    line = (-(torch.arange(-radius, radius + 1).double() ** 2) / (2 * sigma**2)).exp()
    return line / line.sum()


def _filtered(x: Images, kernel: Tensor, border: str) -> Images:
    """Each channel with the same kernel of odd sides."""
    reach = [(side - 1) // 2 for side in kernel.shape]
    padding = [reach[1], reach[1], reach[0], reach[0]]
    narrow = any(r >= side for r, side in zip(reach, x.shape[-2:], strict=True))
    wider = pad(x, padding, mode="replicate" if narrow else border)
    each = kernel.expand(x.shape[1], 1, *kernel.shape)
    return conv2d(wider, each, groups=x.shape[1])
