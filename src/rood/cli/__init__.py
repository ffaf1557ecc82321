"""The command `rood`: parse, call one function, print. Heavy imports wait until needed."""

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from rood.errors import RoodError, RoodWarning

TYPED = "rood.typed"  # where the context of a command keeps the whole command line
CONTINUED = {"attack", "audit", "reproduce", "train"}  # commands that continue an interrupted run


class _Commands(TyperGroup):
    """Turns errors of rood into one line and an exit code; keeps the command as it was typed."""

    def parse_args(self, ctx: Any, args: Any) -> Any:
        ctx.meta[TYPED] = shlex.join(["rood", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _warnings_as_notes():
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


from rood.cli import attack, audit, doctor, fit, list, report, score, train  # noqa: E402, F401  (they add their commands)

for _point in entry_points(group="rood.commands"):  # such as `reproduce` of rood-papers
    app.command(_point.name)(_point.load())
