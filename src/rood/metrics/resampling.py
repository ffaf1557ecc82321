"""Draws with replacement from the scores of two sides, as counts along their order."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.float64]

_CHUNK = 1 << 13  # counts in work: with larger arrays page faults take most of the time
_REMEMBERED = 1 << 21  # counts kept for the next draws from as many scores: 16 MiB


def draws(n: int, m: int, resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    """How many draws fall on the k lowest scores of each side: (r, n + 1) and (r, m + 1)."""
    few = resamples * (n + m) <= _REMEMBERED
    yield from (_remembered if few else _drawn)(n, m, resamples, seed)


@lru_cache(maxsize=4)
def _remembered(n: int, m: int, resamples: int, seed: int) -> list[tuple[Counts, Counts]]:
    return list(_drawn(n, m, resamples, seed))


def _drawn(n: int, m: int, resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    rng = np.random.default_rng(seed)
    most = max(1, _CHUNK // (n + m))
    for start in range(0, resamples, most):
        r = min(most, resamples - start)
        yield _below(rng, n, r), _below(rng, m, r)


def _below(rng: np.random.Generator, n: int, r: int) -> Counts:
    drawn = rng.integers(n, size=(r, n)) + n * np.arange(r)[:, None]
    times = np.bincount(drawn.ravel(), minlength=r * n).reshape(r, n)
    return np.concatenate([np.zeros((r, 1)), times.cumsum(axis=1)], axis=1)
