"""Pictures of attacked images."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from rood.report import write_report


def test_colour_images_and_large_ones_are_shown(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    for channels, size in ((3, 32), (3, 300), (2, 16), (4, 16)):
        image = np.full((2, channels, size, size), 0.5, np.float32)
        tensors = {
            "original": image,
            "attacked": image + 0.01,
            "before": np.ones(2),
            "after": np.ones(2),
        }
        save_file(tensors, tmp_path / "examples" / f"{channels}-{size}.safetensors")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert page.count('alt="original"') == 8
    assert "change × 50" in page
