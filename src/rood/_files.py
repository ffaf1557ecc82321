"""Files that are whole or not there at all."""

import fcntl
import io
import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step that also survives a power cut: old content or new, never half.

    Processes and threads that write the same file at the same time take turns; the last one stays.
    """
    part = path.with_name(path.name + ".part")  # one name: the next try clears what a kill left
    with _held(part) as file:
        try:
            file.truncate(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)  # still held, so it is nobody else's
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _held(part: Path) -> io.BufferedWriter:
    """The part, opened for this writer alone; a kill lets go of it."""
    while True:
        file = part.open("ab")  # which leaves another writer's bytes alone
        try:
            with suppress(OSError):  # a file system without locks: as if nobody else wrote
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), part.stat()):
                return file
        except FileNotFoundError:  # while this one waited, the other has moved it into place
            pass
        except BaseException:
            file.close()
            raise
        file.close()
