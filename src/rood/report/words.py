"""How names, numbers and budgets are written for a reader."""

import math
import unicodedata


def shown(name: object, limit: int = 120) -> str:
    """A name as one printable line: no line breaks, no invisible or direction-changing signs."""
    text = "".join(_printable(sign) for sign in str(name))
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _printable(sign: str) -> str:
    if sign.isspace():
        return " "
    return "\ufffd" if unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Co"} else sign


def plot_text(name: object, limit: int = 18) -> str:
    """A name for inside a figure: plotly reads a few HTML tags in its texts, so none may pass."""
    text = shown(name, limit)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value: float | None, digits: int = 2) -> str:
    """A value with a fixed number of decimals; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as a percentage that never rounds something to nothing."""
    if value is None or not math.isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return "<\u00a00.1\u00a0%"
    return f"{100 * value:.1f}\u00a0%"


def listed(items: list[str], most: int = 12) -> str:
    """Names in a row, as a sentence has them."""
    if len(items) > most:
        items = [*items[:most], f"{len(items) - most} more"]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def count(n: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{n:,} {one if n == 1 else many or one + 's'}".replace(",", "\u202f")
