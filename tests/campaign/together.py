"""Several at once: two processes on one folder, a lost Ray worker, threads on one guard."""

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from campaign.forked import forked
from campaign.kills import finished
from campaign.table import Case, Verdict
from campaign.world import COMMANDS, World

TIMES = 5
THREADS = 8


def cases(world: World) -> Iterator[Case]:
    """Everything that happens at once."""
    for name in COMMANDS:
        for i in range(TIMES):
            judge = functools.partial(two, world, name, 0.02 * i)
            yield Case("together", "two processes", f"{name} {i}", judge)
    for i in range(TIMES):
        yield Case(
            "together", "8 threads on one guard", str(i), functools.partial(threads, world, i)
        )
    for after in (6.0, 9.0):
        judge = functools.partial(lost_worker, world, after)
        yield Case("together", "a lost Ray worker", f"after {after:g} s", judge)


def two(world: World, name: str, pause: float) -> Verdict:
    """Start the same command twice in one folder; then look at what is there."""
    with world.folder() as folder:
        endings = []
        first = os.fork()
        if first == 0:
            ended = world.run(name, folder)
            os._exit({"value": 0, "refused": 10}.get(ended.how, 20))
        time.sleep(pause)
        second = world.run(name, folder)
        endings.append(second.bad or second.how)
        code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        endings.append({0: "value", 10: "refused"}.get(code, "traceback"))
        if "traceback" in endings or "hang" in endings:
            return Verdict("traceback", str(endings))
        if "value" not in endings:
            return Verdict("silently wrong", "each of two processes was refused")
        verdict = finished(world, name, folder)
        refused = "refused" in endings and verdict.kind == "identical"
        return Verdict("clean error", verdict.said) if refused else verdict


def threads(world: World, seed: int) -> Verdict:
    """One guard scores in eight threads what it scored in one."""

    def work() -> bool:
        import torch

        from rood import Guard

        guard = Guard.load(world.reference("fit"))
        draw = torch.Generator().manual_seed(seed)
        batches = [torch.rand(5, *guard.shape, generator=draw) for _ in range(64)]
        alone = [guard(x).score.tolist() for x in batches]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda x: guard(x).score.tolist(), batches)) == alone

    ended = forked(work)
    if ended.how != "value":
        return Verdict(ended.bad or "traceback", ended.said)
    return Verdict("identical" if ended.value else "silently wrong", "other scores")


def lost_worker(world: World, after: float) -> Verdict:
    """Kill one worker of a Ray cluster while it works."""
    with world.folder() as folder:

        def prepare() -> None:
            threading.Thread(target=_kill_one, args=(after,), daemon=True).start()

        more = ("--engine", "ray", "--workers", "2")
        ended = world.run("audit", folder, *more, before=prepare)
        if ended.how != "value":
            return Verdict(ended.bad or "clean error", ended.said)
        wrong = world.differs("audit", folder / "out")
        return Verdict("silently wrong" if wrong else "identical", wrong)


def _kill_one(after: float) -> None:
    time.sleep(after)
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name = (place / "cmdline").read_bytes()
            if name.startswith(b"ray::") and b"IDLE" not in name:
                os.kill(int(place.name), signal.SIGKILL)
                return
        except OSError:  # it has ended by itself
            continue
