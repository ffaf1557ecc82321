"""Rows of images as one picture."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rood._files import write_whole
from rood.shapes import Images

COLUMNS = 8
FOLDER = "pictures"
GAP = 2  # pixels of white


def gallery(out: Path, name: str, rows: Sequence[Images]) -> str:
    """Write the first images of each row, one row below the other; the path within `out`."""
    tiles = [[_tile(image) for image in row[:COLUMNS]] for row in rows]
    lines = [np.concatenate(line, axis=1) for line in tiles]
    file = f"{FOLDER}/{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.png"
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(lines)).save(buffer, format="PNG")
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    write_whole(out / file, buffer.getvalue())
    return file


def _tile(image: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """(c, h, w) in [0, 1] to (h, w, 3) with a white border."""
    pixels = (image.detach().cpu().expand(3, -1, -1) * 255).round().byte().permute(1, 2, 0)
    return np.pad(pixels.numpy(), ((0, GAP), (0, GAP), (0, 0)), constant_values=255)
