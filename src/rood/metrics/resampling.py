"""Draws with replacement from the scores of two sides, as counts along their order."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.intp]

_CHUNK = 1 << 13  # counts in work: with larger arrays page faults take most of the time
_REMEMBERED = 1 << 21  # counts kept for the next draws from as many scores: 16 MiB


def draws(n: int, m: int, resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    """How many draws fall on the k lowest scores of each side: (r, n + 1) and (r, m + 1)."""
    few = resamples * (n + m) <= _REMEMBERED
    yield from (_remembered if few else _drawn)(n, m, resamples, seed)


def group_draws(
    inside: Codes, outside: Codes, resamples: int, seed: int
) -> Iterator[tuple[Counts, Counts]]:
    """The same where whole groups are drawn; given is the group of each score, in their order."""
    rng = np.random.default_rng(seed)
    for r in _chunks(inside.size + outside.size, resamples):
        yield _below(rng, inside, r), _below(rng, outside, r)


@lru_cache(maxsize=4)
def _remembered(n: int, m: int, resamples: int, seed: int) -> list[tuple[Counts, Counts]]:
    return list(_drawn(n, m, resamples, seed))


def _drawn(n: int, m: int, resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    return group_draws(np.arange(n), np.arange(m), resamples, seed)


def _chunks(size: int, resamples: int) -> Iterator[int]:
    most = max(1, _CHUNK // size)
    for start in range(0, resamples, most):
        yield min(most, resamples - start)


def _below(rng: np.random.Generator, groups: Codes, r: int) -> Counts:
    g = int(groups.max()) + 1
    drawn = rng.integers(g, size=(r, g)) + g * np.arange(r)[:, None]
    times = np.bincount(drawn.ravel(), minlength=r * g).reshape(r, g)
    return np.concatenate([np.zeros((r, 1)), times[:, groups].cumsum(axis=1)], axis=1)
