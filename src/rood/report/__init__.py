"""A results folder as one self-contained HTML page. Nothing here imports torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rood.report.page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    # plotly and jinja2 take a while to import: only when a page is really written
    if name == "write_report":
        from rood.report.page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
