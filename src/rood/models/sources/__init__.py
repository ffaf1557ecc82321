"""Where third-party networks come from, one kind per file; `rood.models.load` chooses the file."""

from typing import Any

from rood import _moved


def __getattr__(name: str) -> Any:
    return _moved.name(__name__, name)
