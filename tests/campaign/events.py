"""The moments at which a process touches files: to be killed at, or to meet a fault at."""

import os
import stat
import sys
from collections.abc import Callable
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
Act = Callable[[int], None]  # gets the number of the event, from 0
_safe: dict[int, int] = {}  # by inode: the bytes of a file that an fsync has put on the disk


def at_each_event(act: Act) -> None:
    """Call `act` before each change of a file in this process, and around each fsync and rename."""
    count = 0
    busy = False

    def happen() -> None:
        nonlocal count, busy
        if not busy:  # what `act` itself does is no event
            busy = True
            try:
                act(count)
            finally:
                count, busy = count + 1, False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and _writes(*arguments)):
            happen()

    def around(name: str) -> None:
        usual = getattr(os, name)

        def watched(*args: Any, **more: Any) -> Any:
            if name == "fsync":  # a rename is an event of Python's own
                happen()
            result = usual(*args, **more)
            if name == "fsync":
                info = os.fstat(*args)
                _safe[info.st_ino] = info.st_size
            happen()
            return result

        setattr(os, name, watched)

    for name in ("fsync", "replace", "rename"):
        around(name)
    sys.addaudithook(hook)


def _writes(path: object, mode: object, flags: object) -> bool:
    if not isinstance(flags, int) or isinstance(path, int):
        return False
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) and not name.startswith(("/dev/", "/proc/"))


def tear(folder: str) -> None:
    """Halve what no fsync has made safe of files that are open, as a power cut may."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            name, info = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
            if stat.S_ISREG(info.st_mode) and name.startswith(folder) and info.st_size:
                os.ftruncate(fd, (_safe.get(info.st_ino, 0) + info.st_size) // 2)
        except OSError:  # closed meanwhile, or open for reading
            continue
