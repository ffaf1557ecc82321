"""Figures as JSON inside the page: safe to stand there, and small."""

import json
import math
from collections.abc import Mapping
from typing import Any

from rood.report.figures import Figure

OWN = {"x", "y", "x0", "x1", "dx", "text"}  # what differs from one drawing to the next


def compact(figure: Figure) -> dict[str, Any]:
    """A figure whose traces, lines and notes name what they have in common with others.

    {"like": 3, "y": [...]} stands for styles[3] with a y of its own; the page puts them together.
    """
    styles: dict[str, int] = {}

    def short(node: Any, listed: bool = False) -> Any:
        if isinstance(node, list):
            return [short(item, listed=True) for item in node]
        if not isinstance(node, dict):
            return node
        if not listed:
            return {key: short(value) for key, value in node.items()}
        common = json.dumps({k: v for k, v in node.items() if k not in OWN}, sort_keys=True)
        own = {key: value for key, value in node.items() if key in OWN}
        return {"like": styles.setdefault(common, len(styles)), **own}

    drawings = {key: short(drawing) for key, drawing in figure.drawings.items()}
    common = [json.loads(style) for style in styles]
    return {"layout": figure.layout, "styles": common, "drawings": drawings}


def embedded(value: object) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element, NaN is null."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
