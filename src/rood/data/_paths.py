"""Paths as people write them."""

import os
import re
from pathlib import Path

from rood.errors import DataError


def expanded(text: str) -> Path:
    """The path with ~ and $VARIABLES replaced; a file that is really called so goes first."""
    literal = Path(os.path.expanduser(text))
    if literal.exists():
        return literal
    path = os.path.expandvars(literal)
    if missing := re.search(r"\$(\w+|\{\w+\})", path):
        name = missing.group(1).strip("{}")
        raise DataError(f"expected the environment variable {name} to be set, as {text!r} needs it")
    return Path(path)
