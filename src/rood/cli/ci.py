"""The outcome of an audit for CI servers: files, the summary of a job, an exit code."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rood.evaluation.gate import Missing
    from rood.evaluation.rows import Row
    from rood.evaluation.store import Results

GATE = 3  # exit code where --fail-under is not met


def check(bar: float | None, log_to: str | None) -> None:
    """Refuse, before any work, a limit for no AUROC and a tracker that is not installed."""
    from rood.errors import expect

    if log_to is not None:
        from rood.evaluation.trackers import tracker

        tracker(log_to)
    if bar is not None:
        do = f"did you mean {bar / 100:g}?"
        expect(0 <= bar <= 1, "an AUROC from 0 to 1 for --fail-under", bar, do=do)


def tell(
    results: "Results",
    bar: float | None,
    *,
    junit: Path | None = None,
    sarif: Path | None = None,
    log_to: str | None = None,
    quiet: bool = False,
) -> None:
    """Write files, log numbers; end with an exit code where the bar is not met."""
    rows, missing = results.rows, results.not_attacked()
    if junit is not None:
        from rood.report.junit import junit as as_junit

        _write(junit, as_junit(rows, bar, missing))
    if sarif is not None:
        from rood.report.sarif import sarif as as_sarif

        _write(sarif, as_sarif(rows, bar, missing, _uri(results.folder / "rows.jsonl")))
    if file := os.environ.get("GITHUB_STEP_SUMMARY"):
        from rood.report.summary import summary

        _append(Path(file), summary(rows, bar, missing))
    if log_to is not None:
        results.log_to(log_to)
    if bar is not None:
        _gate(rows, missing, bar, quiet)


def _write(path: Path, content: bytes) -> None:
    from rood._files import write_whole
    from rood.evaluation.store import readable_errors

    with readable_errors(path):
        write_whole(path, content)


def _append(path: Path, text: str) -> None:
    from rood._files import Folder
    from rood.evaluation.store import readable_errors

    with readable_errors(path):
        Folder(path.parent).append(path.name, text.encode())


def _uri(path: Path) -> str:
    """Relative to the working directory, which in CI is the repository."""
    from urllib.parse import quote

    here, there = Path.cwd().resolve(), path.resolve()
    return quote(there.relative_to(here).as_posix()) if here in there.parents else there.as_uri()


def _gate(rows: "Sequence[Row]", missing: "Sequence[Missing]", bar: float, quiet: bool) -> None:
    """Say which detectors do not pass and why, worst first."""
    from rood.evaluation.gate import failure, place, worst_of_each
    from rood.report.words import shown

    each = sorted(worst_of_each(rows, bar), key=lambda r: r.value)
    weak = [f"{place(r)}: {why}" for r in each if (why := failure(r, bar))]
    weak += [f"{m}: not attacked" for m in missing]
    if weak or not each:
        head = f"failed: an AUROC is below {bar:g}, missing, or not to be believed"
        lines = [head, *weak] if each else ["failed: nothing was attacked"]
        typer.echo("".join(f"gate: {shown(line, 400)}\n" for line in lines), err=True, nl=False)
        raise typer.Exit(GATE)
    if not quiet:
        lowest = f"passed: the lowest AUROC with both sides attacked, {each[0].value:.3f}, "
        lowest += f"is not below {bar:g} ({place(each[0])})"
        typer.echo(f"gate: {shown(lowest, 400)}", err=True)
