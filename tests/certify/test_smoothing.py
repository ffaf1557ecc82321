"""The median under noise stays within its bounds; its order statistics are where they must be."""

import pytest
import torch
from scipy.stats import binom
from tiny_nets import images
from torch import nn

from rood.certify.smoothing import order, smoothed
from rood.detectors import Head
from rood.errors import InputError
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.testing._support import as_in_production
from rood.threat import L2, Linf


def linear():
    return Head(scored(wrap(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double())))


def test_the_median_of_a_linear_score_moves_by_eps_times_its_slope():
    head, x, threat = linear(), 0.4 + 0.2 * images(3), L2(0.02)
    low, high = smoothed(head, x, threat, sigma=0.04, draws=4000)
    reach = threat.eps * head.model.scalar_head.weight.norm()
    assert bool((low <= head.score(x) - reach).all())
    assert bool((high >= head.score(x) + reach).all())
    assert bool(((high - low) < 1.5 * 2 * reach).all())
    again = smoothed(head, x[1:2], threat, sigma=0.04, draws=4000)
    assert again.low[0] == low[1]


def test_it_abstains_where_no_draw_is_far_enough_out():
    low, high = smoothed(linear(), images(2), L2(1.0), sigma=0.1, draws=100)
    assert bool((low == -torch.inf).all())
    assert bool((high == torch.inf).all())


@pytest.mark.parametrize(("draws", "q"), [(100, 0.3), (1000, 0.16), (1000, 0.02)])
def test_order_statistics_hold_as_often_as_said(draws, q):
    """The k-th of n lies below a quantile iff at least k draws do: a binomial count."""
    first, last = order(draws, q, 1 - q, 0.01)
    assert binom.sf(first - 1, draws, q) >= 0.995 > binom.sf(first, draws, q)
    assert first + last == draws + 1


def test_no_images_have_no_bounds():
    low, high = smoothed(linear(), images(0), L2(0.1))
    assert low.shape == high.shape == (0,)


def test_what_makes_no_sense_is_refused():
    with as_in_production(), pytest.raises(InputError, match="expected an L2 threat"):
        smoothed(linear(), images(1), Linf(0.1))
    with pytest.raises(InputError, match="expected sigma > 0"):
        smoothed(linear(), images(1), L2(0.1), sigma=0.0)
