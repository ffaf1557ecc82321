"""Run a function in a child process: how it ends, what it says, and how much memory it takes."""

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rood.errors import RoodError

LIMIT = 60.0  # seconds until a run counts as a hang; the longest takes two
ADDRESS_SPACE = 6 << 30  # bytes that a child may add: a bomb becomes an error, not a dead machine
REFUSED = {1, 2, 3}  # exit codes of the command: an error, a wrong option, a gate that is not met


@dataclass(frozen=True)
class Ending:
    """The end of one run."""

    how: str  # "value", "refused", "traceback", "hang" or "killed"
    value: Any = None  # what the function returned
    said: str = ""  # stdout and stderr, the error last
    memory: int = 0  # peak above the process as it was before, in bytes

    @property
    def bad(self) -> str:
        """The column of the table for an end that is neither a value nor a refusal; or nothing."""
        return {"value": "", "refused": "", "hang": "hang"}.get(self.how, "traceback")


def forked(function: Callable[[], Any], limit: float | None = None) -> Ending:
    """Run `function` in a child and wait for it; its value must be JSON."""
    limit = limit or LIMIT
    seen, sent = os.pipe()
    said = os.memfd_create("said")
    child = os.fork()
    if child == 0:
        try:  # never goes on as a second of its parent
            os.close(seen)
            _work(function, said, sent)
        finally:
            os._exit(1)
    os.close(sent)
    text, late = _read(seen, limit, child)
    if late:
        os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    words = os.pread(said, 1 << 16, 0).decode(errors="replace")
    os.close(said)
    if late:
        return Ending("hang", said=words + f"\nno end after {limit:g} s")
    if not text:
        return Ending("killed", said=words + f"\nended by status {status}")
    found = json.loads(text)
    return Ending(found["how"], found["value"], words + found["said"], found["memory"])


def warm_up() -> None:
    """Import once what every child needs; torch alone takes seconds."""
    for name in ("ROOD_DATA", "ROOD_CIFAR10", "ROOD_ZOO", "ROOD_CACHE"):
        os.environ.pop(name, None)
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch

    import rood_papers.framework.run  # noqa: F401

    torch.set_num_threads(1)


def command(arguments: Sequence[str]) -> None:
    """Run the command `rood` in this process."""
    from rood.cli import app

    app(list(arguments), prog_name="rood")


def shared_out(cases: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[Any]:
    """`work` on every case, in processes of their own; its values must be JSON. Not in order."""
    seen, sent = os.pipe()
    children = []
    for i in range(workers):
        if (child := os.fork()) == 0:
            os.close(seen)
            try:
                for case in cases[i::workers]:
                    os.write(sent, json.dumps(work(case)).encode()[:4000] + b"\n")  # whole lines
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    os.close(sent)
    with os.fdopen(seen) as lines:
        yield from map(json.loads, lines)
    if any([os.waitpid(child, 0)[1] for child in children]):
        raise RuntimeError("a worker of the campaign has failed: see above")


def _work(function: Callable[[], Any], said: int, sent: int) -> None:
    os.setpgid(0, 0)
    for i, fd in enumerate((os.open(os.devnull, os.O_RDONLY), said, said)):
        os.dup2(fd, i)
    sys.stdout, sys.stderr = (os.fdopen(i, "w", closefd=False) for i in (1, 2))
    warnings.simplefilter("ignore")  # where warnings are errors, as in tests
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ADDRESS_SPACE, resource.RLIM_INFINITY))
    before = _peak()
    value, error = None, ""
    try:
        value, how = function(), "value"
    except RoodError as e:
        how, error = "refused", f"error: {e}"
    except SystemExit as e:
        how = {0: "value", None: "value"}.get(
            e.code, "refused" if e.code in REFUSED else "traceback"
        )
        value = None if how == "value" else e.code
    except BaseException:
        how, error = "traceback", traceback.format_exc()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as e:  # as Python itself says when it ends
        how, error = "traceback", f"Exception ignored: {e}"
    words = os.pread(said, 1 << 16, 0).decode(errors="replace")
    if "Traceback (most recent call last)" in words or "Exception ignored" in words:
        how = "traceback"
    elif how == "refused" and not error and "error" not in words.lower() and "gate:" not in words:
        how, error = "traceback", f"exit code {value} without a sentence"
    ending = {"how": how, "value": value, "said": error, "memory": _peak() - before}
    os.write(sent, json.dumps(ending).encode())
    os._exit(0)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _read(seen: int, limit: float, child: int) -> tuple[bytes, bool]:
    """What a child sends until it ends, and whether that took too long."""
    start, text = time.monotonic(), b""
    while True:
        left = limit - (time.monotonic() - start - _queued(child))
        if select.select([seen], [], [], max(0.0, left))[0]:
            if not (more := os.read(seen, 1 << 16)):
                break
            text += more
        elif left <= 0:
            break
    os.close(seen)
    return text, left <= 0 and not text


def _queued(child: int) -> float:
    """Seconds for which a process waited for a processor: on a busy machine nothing hangs."""
    try:
        return int(Path(f"/proc/{child}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # it has ended; or a system that does not count
        return 0.0
