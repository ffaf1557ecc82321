"""Fog, snow and bright light."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from rood.corruptions.blur import along, enlarged
from rood.seeds import Noise
from rood.shapes import Images, wide

GREY = (0.299, 0.587, 0.114)
LEVELS = 255


def fog(x: Images, strength: tuple[float, float], draws: Callable[[Images], Noise]) -> Images:
    """A cloud is added, and the image darkened to its former brightest value."""
    thickness, fading = strength
    h, w = x.shape[-2:]
    side = 1 << (max(h, w) - 1).bit_length()
    canvas = pad(x[:, :1], [0, side - w, 0, side - h])
    cloud = _plasma(draws(canvas), side, fading)[:, None, :h, :w].to(x)
    top = wide(x.flatten(1).amax(dim=1))
    return (x + thickness * cloud) * top / (top + thickness)


def _plasma(noise: Noise, side: int, fading: float) -> Float[Tensor, "b s s"]:
    """Heights from 0 to 1 by midpoint displacement (diamond-square)."""
    heights = torch.zeros_like(noise.uniform()[:, 0], dtype=torch.float64)
    step, wobble = side, 100.0
    while step >= 2:
        half = step // 2
        u, v, t = (2 * wobble**2 * (noise.uniform()[:, 0].double() - 0.5) for _ in range(3))
        corner = heights[:, ::step, ::step]
        rows = corner + corner.roll(-1, dims=1)
        square = (rows + rows.roll(-1, dims=2)) / 4
        heights[:, half::step, half::step] = square + u[:, half::step, half::step]
        middle = heights[:, half::step, half::step]
        corner = heights[:, ::step, ::step]
        above = middle + middle.roll(1, dims=1) + corner + corner.roll(-1, dims=2)
        heights[:, ::step, half::step] = above / 4 + v[:, ::step, half::step]
        beside = middle + middle.roll(1, dims=2) + corner + corner.roll(-1, dims=1)
        heights[:, half::step, ::step] = beside / 4 + t[:, half::step, ::step]
        step, wobble = half, wobble / fading
    heights -= heights.amin(dim=(1, 2), keepdim=True)
    return heights / heights.amax(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def snow(x: Images, strength: tuple[float, ...], draws: Callable[[Images], Noise]) -> Images:
    """Flakes that fall at a random angle, over an image that is whitened."""
    mean, spread, factor, cut, radius, sigma, kept = strength
    noise = draws(x)
    flakes = enlarged(mean + spread * noise.normal()[:, :1], factor)
    flakes = torch.where(flakes < cut, torch.zeros_like(flakes), flakes).clamp(0, 1)
    degrees = 90 * noise.uniform_scalar().flatten() - 135
    layer = along((LEVELS * flakes).floor() / LEVELS, radius, sigma, degrees)
    white = torch.maximum(x, 1.5 * _grey(x) + 0.5)
    return kept * x + (1 - kept) * white + layer + layer.flip(2, 3)


def brightness(x: Images, amount: float, draws: Callable[[Images], Noise]) -> Images:
    """The value of hue, saturation and value is raised."""
    value = x.amax(dim=1, keepdim=True)
    brighter = (value + amount).clamp(max=1)
    scaled = x * brighter / value.clamp_min(1e-12)
    return torch.where(value > 0, scaled, brighter.expand_as(x))


def _grey(x: Images) -> Images:
    if x.shape[1] != len(GREY):
        return x.mean(dim=1, keepdim=True)
    return (x * x.new_tensor(GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)
