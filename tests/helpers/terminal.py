"""The command `rood` in a process of its own, at a terminal."""

import os
import select
import sys
from pathlib import Path

import rood

ROOD = [sys.executable, "-c", "from rood.cli import app; app(prog_name='rood')"]


ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS")} | {
    "PYTHONPATH": str(Path(rood.__file__).parents[1]),
    "OMP_NUM_THREADS": "1",
    "TERM": "xterm",
}


def read_all(terminal):
    seen = b""
    try:
        while select.select([terminal], [], [], 60)[0]:
            seen += os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end was closed
        pass
    os.close(terminal)
    return seen.decode()
