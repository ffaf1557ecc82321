"""How names, numbers and budgets are written for a reader."""

import math
import unicodedata


def shown(name: object, limit: int = 120) -> str:
    """A name as one printable line: no line breaks, nothing invisible or direction-changing."""
    text = "".join(_printable(sign) for sign in str(name))
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _printable(sign: str) -> str:
    if sign.isspace():
        return " "
    return "\ufffd" if unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Co"} else sign


def plot_text(name: object, limit: int = 18) -> str:
    """A name in a figure: plotly interprets some HTML tags, so none may pass."""
    text = shown(name, limit)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value: float | None, form: str = ".2f") -> str:
    """A value in the given format; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:{form}}"


def percent(value: float | None) -> str:
    """A share as a percentage; a small one never becomes 0."""
    if value is not None and 0 < value < 0.001:
        return "<\u00a00.1\u00a0%"
    return number(value, ".1%").replace("%", "\u00a0%")


def listed(items: list[str], most: int = 12) -> str:
    """Names in a sentence: "a, b and c"."""
    if len(items) > most:
        items = [*items[:most], f"{len(items) - most} more"]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def whole(n: int) -> str:
    """A whole number, its thousands apart."""
    return f"{n:,}".replace(",", "\u202f")


def count(n: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{whole(n)} {one if n == 1 else many or one + 's'}"
