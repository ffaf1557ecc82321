"""What cameras and files do: little contrast, few pixels, compression."""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from PIL import Image

from rood.seeds import Noise
from rood.shapes import Images

LEVELS = 255
COLOUR = 3


def contrast(x: Images, kept: float, draws: Callable[[Images], Noise]) -> Images:
    """Pixels move towards the mean of their channel."""
    mean = x.mean(dim=(2, 3), keepdim=True)
    return (x - mean) * kept + mean


def pixelate(x: Images, size: float, draws: Callable[[Images], Noise]) -> Images:
    """Fewer and larger pixels: shrunk by averaging, then enlarged to the old size."""

    def coarse(image: Image.Image) -> Image.Image:
        w, h = image.size
        small = image.resize((max(1, int(w * size)), max(1, int(h * size))), Image.Resampling.BOX)
        return small.resize((w, h), Image.Resampling.BOX)

    return _one_by_one(x, coarse)


def jpeg(x: Images, quality: int, draws: Callable[[Images], Noise]) -> Images:
    """Compressed as JPEG and decoded."""

    def through(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _one_by_one(x, through)


def _one_by_one(x: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    """Images of three channels as colour pictures; of any other number, each channel by itself."""
    whole = (LEVELS * x).round().to(torch.uint8).cpu().permute(0, 2, 3, 1).numpy()
    if x.shape[1] == COLOUR:
        found = np.stack([np.asarray(change(Image.fromarray(v))) for v in whole])
    else:
        channels = [
            [np.asarray(change(Image.fromarray(c))) for c in v.transpose(2, 0, 1)] for v in whole
        ]
        found = np.stack([np.stack(image, axis=-1) for image in channels])
    return torch.from_numpy(found).permute(0, 3, 1, 2).to(x) / LEVELS
