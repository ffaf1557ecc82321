"""Files: read with limits, written whole and never through a link; paths as users write them.

A results, guard, attack or training folder may come from a stranger. Every file in one is reached
by way of `Folder`, descriptor by descriptor from the folder that the user named.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO
from zipfile import ZipFile

from rood.errors import DataError, RoodWarning

LINK = "a link stands there, which rood does not follow: remove the link"
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how text begins that a spreadsheet runs
TEXT = 64 << 20  # bytes that a file of text may have: cards, settings, lists
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


def expanded(text: str) -> Path:
    """The path with ~ and $VARIABLES replaced, unless a file with the literal name exists."""
    literal = Path(os.path.expanduser(text))
    if os.path.exists(literal):
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


def for_spreadsheets(cell: object) -> object:
    """A cell of a CSV table; text that a spreadsheet would run as a formula gets a leading '."""
    if not isinstance(cell, str) or not cell.lstrip("'").startswith(FORMULAS):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell


def from_spreadsheets(cell: str) -> str:
    """The text that `for_spreadsheets` was given."""
    formula = cell.startswith("'") and cell.lstrip("'").startswith(FORMULAS)
    return cell[1:] if formula else cell


@contextmanager
def opened(path: Path, most: int | None = None) -> Iterator[BinaryIO]:
    """A regular file to read, of at most `most` bytes; OSError for anything else, at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_regular(descriptor, most)
    except OSError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def content(path: Path, most: int = TEXT) -> bytes:
    """The content of a regular file of at most `most` bytes; OSError for anything else."""
    with opened(path, most) as file:
        return _read(file, most)


def check_unpacked(archive: ZipFile) -> None:
    """Refuse an archive whose members are packed: ours and torch's are not, a bomb's are."""
    there = archive.fp.seek(0, os.SEEK_END) if archive.fp else 0
    if (size := sum(m.file_size for m in archive.infolist())) > there:
        raise Packed(f"expected members that are not packed, got {size:,} bytes from {there:,}")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically; see `Folder.writing`."""
    Folder(path.parent).write(path.name, content)


class Packed(ValueError):
    """An archive that grows on reading."""


@dataclass(frozen=True)
class Folder:
    """A folder whose files are reached without following a link inside it.

    The path of the folder itself is the user's own word and may contain links. A name is relative
    to it and stays inside: "scores/msp.safetensors". Everything raises OSError.
    """

    path: Path

    @contextmanager
    def writing(self, name: str | PurePath) -> Iterator[BinaryIO]:
        """Replace a file atomically: after a crash or power cut it has its old or new content.

        Processes and threads that write the same file take turns; the last one wins.
        """
        with self._holder(name, make=True) as (at, last):
            part = last + ".part"  # a fixed name: the next write replaces leftovers
            with _locked(part, at) as file:
                try:
                    _refuse_link(last, at)
                    file.truncate(0)
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(part, last, src_dir_fd=at, dst_dir_fd=at)
                except BaseException:
                    with suppress(FileNotFoundError):
                        os.unlink(part, dir_fd=at)  # still locked: no other writer uses it
                    raise
            os.fsync(at)

    def write(self, name: str | PurePath, content: bytes) -> None:
        """Replace a file by this content, or leave it as it is."""
        with self.writing(name) as file:
            file.write(content)

    @contextmanager
    def appending(self, name: str | PurePath) -> Iterator[BinaryIO]:
        """A file to add to; it is made if it is not there, and on disk after the block."""
        with self._holder(name, make=True) as (at, last):
            descriptor = _open(last, os.O_RDWR | os.O_CREAT, at)
        with os.fdopen(descriptor, "r+b") as file:
            if os.fstat(descriptor).st_nlink > 1:  # it has a second name, perhaps elsewhere
                raise OSError(errno.EMLINK, LINK, str(name))
            file.seek(0, os.SEEK_END)
            yield file
            file.flush()
            os.fsync(descriptor)

    def append(self, name: str | PurePath, content: bytes) -> None:
        """Add to the end of a file."""
        with self.appending(name) as file:
            file.write(content)

    def read(self, name: str | PurePath, most: int = TEXT) -> bytes:
        """The content of a file of at most `most` bytes."""
        with self._holder(name) as (at, last), os.fdopen(_open(last, os.O_RDONLY, at), "rb") as f:
            _check_regular(f.fileno(), most)
            return _read(f, most)

    def has(self, name: str | PurePath) -> bool:
        """Whether there is a regular file of this name; not by way of a link."""
        with suppress(OSError), self._holder(name) as (at, last):
            return stat.S_ISREG(os.stat(last, dir_fd=at, follow_symlinks=False).st_mode)
        return False

    def files(self, below: str, suffix: str) -> list[str]:
        """The names of all files in a folder inside and in its folders; links are passed over."""
        found = []
        for folder, _, names in os.walk(self.path / below):  # does not follow links
            where = Path(folder).relative_to(self.path)
            found += [str(where / n) for n in names if n.endswith(suffix)]
        return sorted(n for n in found if self.has(n))

    def remove(self, name: str | PurePath) -> None:
        """Delete a file if it is there; of a link, the link."""
        with suppress(FileNotFoundError), self._holder(name) as (at, last):
            os.unlink(last, dir_fd=at)

    def remove_tree(self, name: str | PurePath) -> None:
        """Delete a folder inside with everything in it, if it is there."""
        with suppress(FileNotFoundError, NotADirectoryError), self._holder(name) as (at, last):
            _refuse_link(last, at)
            shutil.rmtree(last, dir_fd=at)

    @contextmanager
    def locked(self, name: str = ".lock", *, wait: bool = False) -> Iterator[int]:
        """Hold a lock, which a kill releases. BlockingIOError where another process holds it.

        Gives the descriptor of the lock's file, for `check_still_there`.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._holder(name) as (at, last):
            descriptor = _open(last, os.O_RDWR | os.O_CREAT, at)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as e:
                if e.errno not in NO_LOCKS:
                    raise
                _warn_of_no_locks(self.path)
            yield descriptor
        finally:
            os.close(descriptor)

    def check_still_there(self, lock: int, name: str = ".lock") -> None:
        """Refuse a folder that was deleted or replaced since it was locked."""
        try:
            same = os.path.samestat(os.fstat(lock), os.stat(self.path / name))
        except FileNotFoundError:
            same = False
        if not same:
            raise OSError(errno.ESTALE, "it was deleted or replaced while rood was writing to it")

    def foreign(self, *ours: str) -> str | None:
        """The first entry that no pattern of `ours` matches; hidden ones aside."""
        if not os.path.isdir(self.path):
            return None
        for name in sorted(os.listdir(self.path)):
            if not name.startswith(".") and not any(PurePath(name).match(p) for p in ours):
                return name
        return None

    @contextmanager
    def _holder(self, name: str | PurePath, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder that holds a file, as an open descriptor, and the last part of its name."""
        *folders, last = _parts(name)
        if make:
            self.path.mkdir(parents=True, exist_ok=True)
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=at)
                below = _open(folder, os.O_RDONLY | os.O_DIRECTORY, at)
                os.close(at)
                at = below
            yield at, last
        finally:
            os.close(at)


def _warn_of_no_locks(path: Path) -> None:
    warnings.warn(
        f"the file system of {path} has no locks: let no other run write to it meanwhile",
        RoodWarning,
        stacklevel=4,
    )


def _parts(name: str | PurePath) -> tuple[str, ...]:
    path = PurePath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EINVAL, "expected a name inside the folder", str(name))
    return path.parts


def _open(name: str, flags: int, at: int) -> int:
    """Open a regular file or, by O_DIRECTORY, a folder: no link, and never waiting for a pipe."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o666, dir_fd=at)
    except OSError:
        _refuse_link(name, at)
        raise
    if not flags & os.O_DIRECTORY:
        try:
            _check_regular(descriptor)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def _check_regular(descriptor: int, most: int | None = None) -> None:
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if most is not None and info.st_size > most:
        raise OSError(errno.EFBIG, f"it has {info.st_size:,} bytes, more than the {most:,} allowed")


def _read(file: BinaryIO, most: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if len(found := file.read(size + 1)) > min(size, most):  # it has grown
        raise OSError(errno.EFBIG, f"it has more than the {most:,} bytes allowed")
    return found


def _refuse_link(name: str, at: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, LINK, name)


def _locked(part: str, at: int) -> BinaryIO:
    """Open the temporary file under an exclusive lock, which a kill releases."""
    while True:
        # not emptied: another writer may be at it
        file = os.fdopen(_open(part, os.O_RDWR | os.O_CREAT, at), "r+b")
        try:
            with suppress(OSError):  # file systems without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            there = os.stat(part, dir_fd=at, follow_symlinks=False)
            if os.path.samestat(os.fstat(file.fileno()), there):
                return file
        except FileNotFoundError:  # the other writer has moved it into place: open a new one
            pass
        except BaseException:
            file.close()
            raise
        file.close()
