"""Reading ahead."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items in the same order; another thread makes the next while one is worked on."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, items, _END)
        while (now := coming.result()) is not _END:
            coming = reader.submit(next, items, _END)
            yield now  # type: ignore[misc]  # not the mark of the end
