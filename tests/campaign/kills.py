"""Kill every command at every file-system event; the same command must end as if undisturbed."""

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from campaign.events import at_each_event, tear
from campaign.table import Case, Verdict
from campaign.world import COMMANDS, World


def cases(world: World) -> Iterator[Case]:
    """Each event of each command; every fourth also with what was not yet safe cut in half."""
    for name in COMMANDS:
        for at in range(events(world, name)):
            for torn in (False, True) if at % 4 == 0 else (False,):
                what = f"{'power cut' if torn else 'kill'} at event {at}"
                judge = functools.partial(killed, world, name, at, torn)
                yield Case("kills", name, what, judge)


def events(world: World, name: str) -> int:
    """How many file-system events an undisturbed run has."""
    with world.folder() as folder:
        log = folder / "events"
        log.touch()

        def prepare() -> None:
            fd = os.open(log, os.O_WRONLY | os.O_APPEND)
            at_each_event(lambda k: os.write(fd, b".") and None)

        assert world.run(name, folder, before=prepare).how == "value"
        return log.stat().st_size


def killed(world: World, name: str, at: int, torn: bool = False) -> Verdict:
    """Kill the command at one event, then run it again."""
    with world.folder() as folder:
        cut_short(world, name, at, folder, torn)
        return finished(world, name, folder)


def cut_short(world: World, name: str, at: int, folder: Path, torn: bool = False) -> None:
    """Run a command in a folder until one of its events."""

    def die(k: int) -> None:
        if k == at:
            if torn:
                tear(str(folder))
            os.kill(os.getpid(), signal.SIGKILL)

    world.run(name, folder, before=lambda: at_each_event(die))


def finished(world: World, name: str, folder: Path) -> Verdict:
    """Run the command in a folder and compare what is there with undisturbed runs."""
    ended = world.run(name, folder)
    if ended.bad:
        return Verdict(ended.bad, ended.said)
    wrong = world.differs(name, folder / "out")
    if not wrong:
        return Verdict("identical" if ended.how == "value" else "clean error", ended.said)
    return Verdict("silently wrong", f"{wrong}\nafter: {ended.how} {ended.said}")
