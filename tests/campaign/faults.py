"""Faults of the machine and of folders from strangers: refused, or met without a difference."""

import errno
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaign.events import at_each_event
from campaign.forked import command, forked
from campaign.kills import events, finished
from campaign.table import Case, Verdict
from campaign.world import COMMANDS, World

SIZES = (4, 16, 48, 96, 256)  # KiB of a disk that is soon full
MOMENTS = (0.1, 0.5, 0.9)  # of a run, at which something fails


def cases(world: World) -> Iterator[Case]:
    """Every fault for every command."""
    for name in COMMANDS:
        for row, what, judge in _of(world, name):
            yield Case("faults", row, f"{name}, {what}", judge)
    for word in ("exit", "interrupt"):
        judge = functools.partial(gate, world, word)
        yield Case("faults", "gate", f"a network that says {word}", judge)


def _of(world: World, name: str) -> Iterator[tuple[str, str, Callable[[], Verdict]]]:
    part = functools.partial
    for kib in SIZES:
        yield "disk full", f"{kib} KiB", part(full, world, name, kib)
    for filled in (False, True):
        yield "read-only", f"filled: {filled}", part(read_only, world, name, filled)
    for call in ("replace", "fsync", "open"):
        for n in (0, 1, 3):
            yield f"failing {call}", f"call {n}", part(failing, world, name, call, n)
    yield "no locks", "ENOLCK", part(disturbed, world, name, _no_locks)
    for moment in MOMENTS:
        yield "deleted folder", f"at {moment:g}", part(deleted, world, name, moment)
    for how in ("closed", "full", "broken pipe"):
        yield "stdout", how, part(disturbed, world, name, part(_stdout, how))
    for seconds in (-3e9, 3e9):
        yield "clock jumps", f"{seconds:g} s", part(disturbed, world, name, part(_clock, seconds))
    for target in sorted(_targets(world.reference(name))):
        yield "links", target, part(linked, world, name, target)


def met(world: World, name: str, folder: Path, before: Callable[[], None]) -> Verdict:
    """Run with a fault, then without: refused or identical, and in the end identical."""
    ended = world.run(name, folder, before=before)
    if ended.bad:
        return Verdict(ended.bad, ended.said)
    if ended.how == "value" and (wrong := world.differs(name, folder / "out")):
        return Verdict("silently wrong", f"exit code 0, yet {wrong}\n{ended.said}")
    again = finished(world, name, folder)
    if again.kind == "silently wrong" or ended.how == "value":
        return (
            again if ended.how != "value" or again.kind != "clean error" else Verdict("identical")
        )
    return Verdict("clean error", ended.said) if again.kind != "traceback" else again


def disturbed(world: World, name: str, before: Callable[[], None]) -> Verdict:
    """Run in a new folder, in a child that is prepared to fail."""
    with world.folder() as folder:
        return met(world, name, folder, before)


def full(world: World, name: str, kib: int) -> Verdict:
    """A disk that is full after some KiB; then it is larger."""
    with world.folder() as folder, _mounted(folder / "out", f"size={kib}k"):
        ended = world.run(name, folder)
        if ended.bad:
            return Verdict(ended.bad, ended.said)
        if ended.how == "value":
            wrong = world.differs(name, folder / "out")
            return Verdict("silently wrong" if wrong else "identical", wrong + ended.said)
        _mount("-o", "remount,size=64m", folder / "out")
        again = finished(world, name, folder)
        return Verdict("clean error", ended.said) if again.kind == "identical" else again


def read_only(world: World, name: str, filled: bool) -> Verdict:
    """A folder on a disk that cannot be written, empty or with results."""
    with world.folder() as folder, _mounted(folder / "out", "size=64m"):
        if filled:
            shutil.copytree(world.reference(name), folder / "out", dirs_exist_ok=True)
        _mount("-o", "remount,ro", folder / "out")
        ended = world.run(name, folder)
        if ended.how == "value":
            wrong = world.differs(name, folder / "out")
            return Verdict("silently wrong" if wrong else "identical", wrong + ended.said)
        return Verdict(ended.bad or "clean error", ended.said)


def failing(world: World, name: str, call: str, n: int) -> Verdict:
    """One call of the system fails, as a bad disk makes it."""
    if call == "open":
        before = lambda: at_each_event(functools.partial(_fail_at, 4 * n))
    else:
        before = functools.partial(_broken, call, n)
    return disturbed(world, name, before)


def _fail_at(n: int, k: int) -> None:
    if k == n:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def _broken(call: str, n: int) -> None:
    usual, seen = getattr(os, call), 0

    def fails(*args: Any, **more: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == n + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return usual(*args, **more)

    setattr(os, call, fails)


def _no_locks() -> None:
    def flock(fd: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = fcntl.lockf = flock  # type: ignore[assignment]


def deleted(world: World, name: str, moment: float) -> Verdict:
    """Somebody removes the folder while the command works."""
    at = int(moment * events(world, name))

    def remove(k: int) -> None:
        if k == at:
            shutil.rmtree("out", ignore_errors=True)

    with world.folder() as folder:
        ended = world.run(name, folder, before=lambda: at_each_event(remove))
        if ended.bad:
            return Verdict(ended.bad, ended.said)
        wrong = world.differs(name, folder / "out")
        if ended.how == "value":
            return Verdict("silently wrong" if wrong else "identical", wrong + ended.said)
        again = finished(world, name, folder)
        return Verdict("clean error", ended.said) if again.kind == "identical" else again


def _stdout(how: str) -> None:
    if how == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # as Python starts without one
        return
    if how == "full":
        end = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, end = os.pipe()
        os.close(reader)
    os.dup2(end, 1)
    sys.stdout = os.fdopen(os.dup(1), "w")


def _clock(seconds: float) -> None:
    """The clock jumps with every look at it, forth or back and home again."""
    usual, looks = time.time, 0

    def jumping() -> float:
        nonlocal looks
        looks += 1
        return usual() + (seconds if looks % 2 else 0.0)

    time.time = jumping


def _targets(reference: Path) -> set[str]:
    """The files of a folder, one of each kind, their temporary names, and the lock."""
    kinds = {(f.parent, f.suffix): f for f in sorted(reference.rglob("*")) if f.is_file()}
    names = {str(f.relative_to(reference)) for f in kinds.values()} - {".lock"}
    return names | {f"{name}.part" for name in names} | {".lock"}


def linked(world: World, name: str, target: str) -> Verdict:
    """A folder from a stranger, in which one file is a link to a file of ours."""
    with world.folder() as folder:
        victim = folder / "victim"
        victim.write_bytes(PRECIOUS)
        place = folder / "out" / target
        place.parent.mkdir(parents=True)
        place.symlink_to(victim)
        ended = world.run(name, folder)
        if not victim.exists() or victim.read_bytes() != PRECIOUS:
            return Verdict("silently wrong", f"wrote through the link {target}\n{ended.said}")
        if ended.how == "value":
            wrong = world.differs(name, folder / "out")
            return Verdict("silently wrong" if wrong else "identical", wrong)
        return Verdict(ended.bad or "clean error", ended.said)


PRECIOUS = b"precious\n"
NETWORK = """
import sys
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        open("called", "w").close()
        {}
def make():
    return Net()
"""
ENDS = {"exit": "sys.exit(0)", "interrupt": "raise KeyboardInterrupt"}


def gate(world: World, word: str) -> Verdict:
    """A network that ends the process must not make a gate pass."""
    with world.folder() as folder:
        (folder / "ends.py").write_text(NETWORK.format(ENDS[word]))
        start = world.arguments("audit")
        start[start.index("--model") + 1] = "ends:make"
        gate = ("--fail-under", "0.5", "--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")

        def work() -> None:
            os.chdir(folder)
            command([*start, *gate])

        ended = forked(work)
        if ended.how == "value" or not (folder / "called").exists():
            return Verdict("silently wrong", f"the gate has passed, or not begun\n{ended.said}")
        stopped = ended.how == "traceback" and "stopped:" in ended.said  # exit code 130
        return Verdict("clean error" if stopped else ended.bad or "clean error", ended.said)


class _mounted:
    """A file system in memory at a place, as long as the block lasts."""

    def __init__(self, place: Path, options: str) -> None:
        self.place, self.options = place, options

    def __enter__(self) -> None:
        self.place.mkdir(parents=True)
        _mount("-t", "tmpfs", "-o", self.options, "tmpfs", self.place)

    def __exit__(self, *why: object) -> None:
        subprocess.run(["umount", "-l", self.place], check=True)


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)
