"""Files that are whole or not there at all."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step that also survives a power cut: old content or new, never half."""
    part = path.with_name(path.name + ".part")  # one name: the next try clears what a kill left
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
