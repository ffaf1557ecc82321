"""Files: atomic writes, and paths and names as users write them."""

import fcntl
import io
import os
import re
from contextlib import suppress
from pathlib import Path

from rood.errors import DataError


def expanded(text: str) -> Path:
    """The path with ~ and $VARIABLES replaced, unless a file with the literal name exists."""
    literal = Path(os.path.expanduser(text))
    if literal.exists():
        return literal
    path = os.path.expandvars(literal)
    if missing := re.search(r"\$(\w+|\{\w+\})", path):
        name = missing.group(1).strip("{}")
        raise DataError(f"expected the environment variable {name} to be set, as {text!r} needs it")
    return Path(path)


def shown(path: Path) -> str:
    """A path for messages: quoted, unprintable characters escaped."""
    return repr(str(path))


def as_utf8(name: str) -> str:
    """A file name that can be written as UTF-8; other bytes are escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash or power cut it has its old or new content.

    Processes and threads that write the same file take turns; the last one wins.
    """
    part = path.with_name(path.name + ".part")  # a fixed name: the next write replaces leftovers
    with _locked(part) as file:
        try:
            file.truncate(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)  # still locked: no other writer uses it
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _locked(part: Path) -> io.BufferedWriter:
    """Open the temporary file under an exclusive lock, which a kill releases."""
    while True:
        file = part.open("ab")  # keeps what another writer has written
        try:
            with suppress(OSError):  # file systems without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), part.stat()):
                return file
        except FileNotFoundError:  # the other writer has moved it into place: open a new one
            pass
        except BaseException:
            file.close()
            raise
        file.close()
