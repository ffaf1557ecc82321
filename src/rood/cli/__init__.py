"""The command `rood`: parse, call one function, print. Heavy imports wait until needed."""

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from rood.errors import ResultsError, RoodError, RoodWarning
from rood.version import __version__

TYPED = "rood.typed"  # where the context of a command keeps the whole command line
# packages that rood calls itself; other modules in a traceback are the user's
KNOWN = (
    *("torch", "numpy", "scipy", "sklearn", "safetensors", "jaxtyping", "beartype", "PIL"),
    *("typer", "click", "rich", "jinja2", "plotly", "transformers", "timm", "datasets", "ray"),
)
CONTINUED = {"attack", "audit", "reproduce", "train"}  # commands that continue an interrupted run


class _Commands(TyperGroup):
    """Turns errors of rood into one line and an exit code; keeps the command as it was typed."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        ctx.meta[TYPED] = shlex.join(["rood", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _warnings_as_notes(), _stdout_checked():
                return super().invoke(ctx)
        except RoodError as e:
            from rood.report.words import shown

            typer.echo(f"error: {shown(e, 2000)}", err=True)  # one line, whatever a file is called
            raise typer.Exit(1) from e
        except SystemExit as e:  # rood never raises it; success is only what it has judged itself
            said = f"code of the network or of a library ended the command (exit code {e.code})"
            typer.echo(f"error: {said}: remove its sys.exit()", err=True)
            raise typer.Exit(1) from e
        except KeyboardInterrupt as e:
            continues = ctx.invoked_subcommand in CONTINUED
            how = "continues from here" if continues else "starts from the beginning"
            typer.echo(f"stopped: the same command {how}", err=True)
            raise typer.Exit(130) from e
        except Exception as e:
            e.add_note(_whose(e))
            raise


def _whose(e: BaseException) -> str:
    """Whether an error that rood does not know comes from the user's code, and where."""
    known = {"rood", "rood_papers", "rood_zoo", *KNOWN, *sys.stdlib_module_names}
    foreign = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(e.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in known
    ]
    if not foreign:
        return f"this is a fault of rood {__version__}: please report it with the text above"
    file, line = foreign[-1]
    return f"this is raised by code that is not rood's: {file}, line {line}"


class _Stdout:
    """stdout that says why it cannot be written: its disk is full, its pipe was closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._said():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._said():
            self._stream.flush()

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:  # what is left goes nowhere, so that Python ends in peace
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            reason = (e.strerror or str(e)).lower()
            raise ResultsError(f"cannot write to stdout ({reason}): files are not affected") from e


@contextmanager
def _stdout_checked() -> Iterator[None]:
    """Errors of stdout as one sentence; it is written before Python ends."""
    usual = sys.stdout
    if usual is None:  # it was closed before Python began
        yield
        return
    sys.stdout = _Stdout(usual)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = usual


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show a warning of rood as one line, and others as Python does."""

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        from rood.cli.show import note

        if issubclass(category, RoodWarning):
            note(message)
        else:
            usual(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RoodWarning)
        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from rood import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Can your out-of-distribution detector be trusted under attack?"""


from rood.cli import (  # noqa: E402  (they add their commands)
    attack,  # noqa: F401
    audit,  # noqa: F401
    break_,  # noqa: F401
    certify,  # noqa: F401
    diff,  # noqa: F401
    doctor,  # noqa: F401
    fit,  # noqa: F401
    list,  # noqa: F401
    report,  # noqa: F401
    score,  # noqa: F401
    sign,  # noqa: F401
    train,  # noqa: F401
    verify,  # noqa: F401
    watch,  # noqa: F401
)

for _point in entry_points(group="rood.commands"):  # such as `reproduce` of rood-papers
    app.command(_point.name)(_point.load())
