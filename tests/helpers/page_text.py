"""A page as its readers and its scripts see it."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Text(HTMLParser):
    """The visible words of a page, its elements, and its embedded data."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["script"]:
            self.scripts.append(data)
        elif not self._inside and data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    @property
    def figures(self) -> dict[str, Any]:
        """The figures as the page's script puts them together."""
        figures = json.loads(self.scripts[0])
        for figure in figures.values():
            figure["drawings"] = _whole(figure["drawings"], figure["styles"])
        return figures


def _whole(node: Any, styles: list[dict[str, Any]]) -> Any:
    if isinstance(node, list):
        return [_whole(item, styles) for item in node]
    if not isinstance(node, dict):
        return node
    own = {key: _whole(value, styles) for key, value in node.items() if key != "like"}
    return styles[node["like"]] | own if "like" in node else own
