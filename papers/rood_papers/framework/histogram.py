"""Where the numbers of several groups lie, in bars that all of them share."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike


def histogram(
    groups: Mapping[str, ArrayLike],
    bars: int,
    beyond: float = 0.0,  # share of all numbers beyond each end, counted in the outermost bar
) -> Iterator[tuple[str, float, float]]:
    """Group, middle of a bar, share of that group in it."""
    values = {name: np.asarray(v, dtype=np.float64) for name, v in groups.items()}
    together = np.concatenate(list(values.values()))
    low, high = np.quantile(together, [beyond, 1 - beyond])
    borders = np.histogram_bin_edges([low, high], bars)
    middles = (borders[1:] + borders[:-1]) / 2
    for name, own in values.items():
        counts, _ = np.histogram(np.clip(own, low, high), borders)
        for x, count in zip(middles.tolist(), counts.tolist(), strict=True):
            yield name, x, count / len(own)
