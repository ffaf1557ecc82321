"""A user namespace in which nothing but one empty folder in memory can be written."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

INSIDE = "ROOD_CAMPAIGN_SANDBOX"
ROWS = "ROOD_CAMPAIGN_ROWS"  # the descriptor of a file that the sandbox may write
SCRATCH = Path("/tmp")
REFUSAL = (
    "error: expected a user namespace to run the campaign in, so that a failure cannot hurt this "
    "machine, got none ({}): allow unprivileged user namespaces, or run it in a container"
)
# every mount is made read-only, then memory is laid over /tmp and /dev/shm
SCRIPT = """
set -e
mount --make-rprivate /
cut -d' ' -f2 /proc/self/mounts | sort -u | while read -r place; do
  mount -o remount,bind,ro "$(printf '%b' "$place")" 2>/dev/null || true
done
mount -t tmpfs -o size=6g tmpfs /tmp
if [ -d /dev/shm ]; then mount -t tmpfs -o size=3g tmpfs /dev/shm; fi
exec "$@"
"""


SPACES = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


def enter(arguments: list[str], rows: Path | None) -> int:
    """Run the campaign again inside the sandbox; its exit code."""
    if why := reason_against():
        print(REFUSAL.format(why), file=sys.stderr)
        return 1
    place = {"HOME": "/tmp", "TMPDIR": "/tmp", INSIDE: "1", "PYTHONDONTWRITEBYTECODE": "1"}
    again = [sys.executable, "-m", "campaign", *arguments]
    if rows is None:
        return run(again, env=os.environ | place).returncode
    with rows.open("a+") as file:
        place[ROWS] = str(file.fileno())
        return run(again, env=os.environ | place, pass_fds=(file.fileno(),)).returncode


def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing but memory can be written."""
    inside = [*SPACES, "sh", "-c", SCRIPT, "sh", *command]
    return subprocess.run(inside, check=False, **more)


def reason_against() -> str:
    """Why there can be no sandbox here; empty where there can."""
    try:
        tried = run(["true"], capture_output=True, text=True)
    except OSError as e:
        return str(e)
    said = tried.stderr.strip().splitlines() or ["no reason given"]
    return said[-1] if tried.returncode else ""


def is_closed(outside: Path) -> bool:
    """Whether this process cannot write outside of memory."""
    try:
        (outside / ".campaign").touch()
    except OSError:
        return True
    (outside / ".campaign").unlink()
    return False
