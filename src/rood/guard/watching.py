"""A stream of image files through a monitor, one JSON object per image."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rood._files import as_utf8
from rood.data.images import decode, resize
from rood.errors import DataError
from rood.guard.monitor import Monitor
from rood.guard.scoring import images_below


@dataclass
class Watch:
    """Image files in the order in which they come, each read and judged before the next."""

    monitor: Monitor
    skip_bad: bool = False
    skipped: list[str] = field(default_factory=list, init=False)  # unreadable files
    rejected: int = field(default=0, init=False)

    def run(self, files: Iterable[Path]) -> Iterator[dict[str, Any]]:
        """What the monitor says of each image, in types that JSON knows."""
        channels, height, width = self.monitor.guard.shape
        for file in files:
            name = as_utf8(str(file))
            try:
                pixels = decode(file, channels, shown=repr(name)).pixels
            except DataError as e:
                if not self.skip_bad:
                    raise DataError(f"{e}: repair it, remove it, or use --skip-bad") from e
                self.skipped.append(name)
                continue
            x = torch.tensor(resize(pixels, height, width)).permute(2, 0, 1)[None]
            (reading,) = self.monitor.see((x.float() / 255).to(self.monitor.guard.model.mean))
            self.rejected += not reading.accept
            finite = reading.score if abs(reading.score) < float("inf") else None
            yield {"file": name} | reading._asdict() | {"score": finite}


def files_of(source: str, lines: Iterable[str]) -> Iterable[Path]:
    """The images below a folder, by name; for "-" or "stdin" the files that the lines name."""
    if source in ("-", "stdin"):
        return (Path(line.rstrip("\r\n")) for line in lines if line.strip())
    return images_below(Path(source.removeprefix("folder:")))
