"""Claim: an audit's memory does not grow with its images: it keeps a few numbers for each.

10 thousand to a million images, clean and attacked, each audit in a process of its own. The images
are mapped from a file, from which the system can read them again: what counts is the largest size
of what the process itself asked for (Linux only).
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.fitting import CLASSES, SIZES, D, _megabytes, kept, network
from benchmarks.measure import Claim, Point, apart, report
from rood.api import audit
from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.detectors import MSP
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf

BAR = 0.1  # memory gained, as a share of the features' own
BATCH, LOOKS = 2048, 100  # images at once; looks at the memory a second
HELD = 1000  # images to calibrate with, whatever the size


def mapped(folder: Path, name: str, n: int) -> ImageSet:
    """So many random images in a file, never all at once in memory."""
    g, path = generator(0, "audited", name), folder / f"{name}.npy"
    pixels = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(n, 1, 1, D))
    for i in range(0, n, BATCH):
        part = pixels[i : i + BATCH]
        part[:] = torch.randint(256, part.shape, dtype=torch.uint8, generator=g).numpy()
    pixels.flush()
    return ImageSet(name, torch.from_numpy(np.load(path, mmap_mode="c")), torch.arange(n) % CLASSES)


class Fullest:
    """The most that this process asked for while it was watched, less what it had before."""

    def __enter__(self) -> "Fullest":
        self.before = self.most = anonymous()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(1 / LOOKS):
            self.most = max(self.most, anonymous())


def anonymous() -> float:
    """Megabytes of this process that no file backs."""
    return _megabytes("RssAnon")


def audited(n: int, steps: int = 2) -> Point:
    """Half of the n images inside, half outside."""
    model = wrap(network())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sets = [mapped(folder, side, n // 2) for side in ("inside", "outside")]
        held = mapped(folder, "calibrate", HELD)
        start = time.perf_counter()
        with Fullest() as memory:
            audit(
                model, {"msp": MSP(model)}, inside=sets[0], outside={"noise": sets[1]},
                calibrate=held, threats=[Linf(1 / 255)], attack=PGD(steps=steps),
                out=folder / "audit", batch_size=BATCH, anyway=True,
            )  # fmt: skip
        took = time.perf_counter() - start
    gained = round(memory.most - memory.before, 1)
    return {"images": n, "seconds": round(took, 1), "megabytes": gained}


def claims(sizes: tuple[int, ...] = SIZES) -> list[Claim]:
    points = tuple(apart("auditing", n) for n in sizes)
    gained = kept([*points])
    detail = f"{sizes[0]:,} to {sizes[-1]:,} images of {D} features, PGD-2, two sides"
    return [Claim("audit: memory gained / features", gained, BAR, 1, 0.0, detail, points=points)]


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(audited(int(sys.argv[1]))))
    else:
        sys.exit(report("auditing", claims()))
