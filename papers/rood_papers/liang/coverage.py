"""How likely random codes cover a latent space: the counting argument of LIANG's section 2.2.

`rood.analysis.dimensions.coverage_of_bits` is the bound for sizes too large for the sum.
"""

import math

import numpy as np

from rood.errors import InputError

EXACT = 20_000  # draws times spots up to which integers are fast


def stirling(n: int, k: int) -> int:
    """S(n, k): the number of partitions of n things into k non-empty sets."""
    if n < 0 or k < 0:
        raise InputError(f"expected n >= 0 and k >= 0, got {n} and {k}")
    row = [1]  # S(0, 0)
    for _ in range(n):
        row = [0, *(j * row[j] + row[j - 1] for j in range(1, len(row))), 1]
    return row[k] if k <= n else 0


def coverage(n: int, spots: int) -> float:
    """P(n even draws hit each of `spots` at least once) = spots! S(n, spots) / spots^n.

    In integers where that is fast; otherwise by the distribution of the number of spots hit after
    each draw, a sum of positive terms without cancellation.
    """
    if n < 0 or spots < 1:
        raise InputError(f"expected n >= 0 draws and spots >= 1, got {n} and {spots}")
    if n < spots:
        return 0.0
    if n * spots <= EXACT:
        return math.factorial(spots) * stirling(n, spots) / spots**n
    j = np.arange(spots + 1)
    hit = np.zeros(spots + 1)
    hit[0] = 1.0
    for _ in range(n):
        fresh = hit * (spots - j) / spots
        hit = hit * j / spots
        hit[1:] += fresh[:-1]
    return float(hit[-1])
