"""Count the modules of rood whose functions run during `rood audit` of one network with MSP alone.

python tools/trace_audit.py           one network, MSP, a few images
python tools/trace_audit.py --demo    the demo: `rood audit` without options

Prints the modules and their number. Code that runs while a module is imported does not count. A hop
back is a call into a module that is already on the stack below its caller, where both modules know
each other by name; a callback or a method that a subclass fills is none.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

SMALL = ("--model", "digits-ce", "--detectors", "msp", "--limit", "20", "--steps", "2")


class Trace:
    """A profile function that collects modules and calls from module to module."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.back: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """The interpreter calls this at every call and return."""
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("rood."):
            return
        caller = frame.f_back.f_globals.get("__name__", "") if frame.f_back else ""
        if module == caller or (module in self.modules and (caller, module) in self.back):
            return
        stack = list(_stack(frame))
        if any(code == "<module>" for _, code in stack):
            return  # an import
        self.modules.add(module)
        outer = [name for name, _ in stack if name != module]
        if (
            outer
            and module in {name for name, _ in stack[1:]}
            and _know_each_other(module, outer[0])
        ):
            self.back.add((outer[0], module))


def _stack(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Module and function of every frame of rood, innermost first."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("rood."):
            yield name, frame.f_code.co_name
        frame = frame.f_back


def _know_each_other(a: str, b: str) -> bool:
    return _knows(sys.modules.get(a), b) and _knows(sys.modules.get(b), a)


def _knows(module: ModuleType | None, other: str) -> bool:
    values = list(vars(module).values()) if module else []
    return any(getattr(v, "__module__", None) == other or v is sys.modules[other] for v in values)


def _is_entry(module: str) -> bool:
    """Whether it is one of many of its kind: a detector, an attack, a check, an image source."""
    package, _, name = module.rpartition(".")
    registry = getattr(sys.modules.get(package), "registry", None)
    return registry is not None and name in getattr(registry, "files", ())


def traced(do: Callable[[], object]) -> Trace:
    """Run it under the trace."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        with suppress(SystemExit):
            do()
    finally:
        sys.setprofile(None)
    return trace


def main() -> None:
    """Trace one audit and print what ran."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="the demo instead of MSP alone")
    given = parser.parse_args()
    from rood.cli import app

    with tempfile.TemporaryDirectory() as out:
        options = () if given.demo else SMALL
        command = ["audit", *options, "--device", "cpu", "--out", str(Path(out) / "audit")]
        trace = traced(lambda: app(command, prog_name="rood"))
    for module in sorted(trace.modules):
        print(module)
    for caller, module in sorted(trace.back):
        print(f"hop back: {caller} -> {module}")
    entries = [m for m in trace.modules if _is_entry(m)]
    print(
        f"{len(trace.modules)} modules ({len(entries)} of them entries of a registry, one per file), "
        f"{len(trace.back)} hops back"
    )


if __name__ == "__main__":
    main()
