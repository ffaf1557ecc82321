"""One corruption of a batch of images, by its name and severity."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from rood.corruptions import blur, digital, noise, weather
from rood.errors import expect
from rood.registry import unknown
from rood.seeds import Noise, generator
from rood.shapes import Images

SEVERITIES = 5
SMALL = 64  # pixels: up to here the strengths of CIFAR-10-C, beyond it those of ImageNet-C
LEVELS = 255


class Kind(NamedTuple):
    """A corruption and its strength at each severity, for small images and for large ones."""

    apply: Callable[[Images, Any, Callable[[Images], Noise]], Images]
    small: tuple[Any, ...]
    large: tuple[Any, ...]


KINDS: dict[str, Kind] = {
    "gaussian_noise": Kind(
        noise.gaussian, (0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)
    ),
    "shot_noise": Kind(noise.shot, (500, 250, 100, 75, 50), (60, 25, 12, 5, 3)),
    "impulse_noise": Kind(
        noise.impulse, (0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27)
    ),
    "gaussian_blur": Kind(blur.gaussian, (0.4, 0.6, 0.7, 0.8, 1), (1, 2, 3, 4, 6)),
    "defocus_blur": Kind(  # radius, sigma of its edge
        blur.defocus,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "motion_blur": Kind(  # radius, sigma
        blur.motion,
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom_blur": Kind(  # steps, their size
        blur.zoom,
        ((6, 0.01), (11, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)),
        ((11, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03)),
    ),
    "fog": Kind(  # thickness, how fast its detail fades
        weather.fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "snow": Kind(  # mean, spread, zoom, cut, blur radius, blur sigma, share of the image kept
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    "brightness": Kind(weather.brightness, (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": Kind(digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    "pixelate": Kind(digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25)),
    "jpeg": Kind(digital.jpeg, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
}


def names() -> list[str]:
    """The names of all corruptions.

    Examples
    --------
    >>> from rood.corruptions import names
    >>> "fog" in names()
    True
    """
    return list(KINDS)


@torch.no_grad()
def corrupt(x: Images, kind: str, severity: int = 3) -> Images:
    r"""Images under a common corruption, as files hold them: whole levels n/255.

    Definitions and strengths are those of Hendrycks & Dietterich, *Benchmarking Neural Network
    Robustness to Common Corruptions and Perturbations*, arXiv:1903.12261: of CIFAR-10-C for images
    of up to 64 pixels a side, of ImageNet-C for larger ones. Theirs without glass, frost and the
    elastic transform, with the Gaussian blur of the extra set. The randomness of an image depends
    on its pixels, the kind and the severity alone.

    Parameters
    ----------
    x : Tensor of shape (n, c, h, w)
        Pixels in [0, 1].
    kind : str
        One of `names()`.
    severity : int
        1 (weak) to 5 (strong).

    Examples
    --------
    >>> from rood.corruptions import corrupt
    >>> x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> corrupt(x, "fog", severity=2).shape
    torch.Size([2, 3, 32, 32])
    """
    found = checked(kind, severity)
    if len(x) == 0:
        return x
    strengths = found.small if max(x.shape[-2:]) <= SMALL else found.large
    source = partial(generator, 0, "corruption", kind, severity)
    corrupted = found.apply(x, strengths[severity - 1], lambda like: Noise(like, source()))
    return (LEVELS * corrupted.clamp(0, 1)).round() / LEVELS


def checked(kind: str, severity: int) -> Kind:
    """The corruption of that name, if the severity exists too."""
    if kind not in KINDS:
        raise unknown("corruption", kind, KINDS)
    fits = severity in range(1, SEVERITIES + 1)
    expect(fits, f"a severity from 1 to {SEVERITIES}", severity)
    return KINDS[kind]
