"""The pytest plugin: the fixture `rood_audit`. Loads no torch when pytest starts."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rood.evaluation.store import Results


@pytest.fixture(scope="session")
def rood_audit(tmp_path_factory: pytest.TempPathFactory) -> "Callable[..., Results]":
    """`rood.audit` with its arguments; without `out`, each call has a temporary folder of its own.

    Prints the path of the page, which pytest shows where a test fails.
    """

    def audit(*args: Any, out: str | Path | None = None, **named: Any) -> "Results":
        import rood

        folder = tmp_path_factory.mktemp("rood-audit") if out is None else out
        results = rood.audit(*args, out=folder, **named)
        print(f"report: {results.folder / 'report.html'}")
        return results

    return audit
