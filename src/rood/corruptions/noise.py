"""Noise in every pixel by itself."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import pdtr

from rood.seeds import Noise
from rood.shapes import Images

LEVELS = 255


def gaussian(x: Images, sigma: float, draws: Callable[[Images], Noise]) -> Images:
    """x + sigma n, n standard normal."""
    return x + sigma * draws(x).normal()


def shot(x: Images, photons: float, draws: Callable[[Images], Noise]) -> Images:
    """Poisson(photons x) / photons: few photons in the dark. x counts in levels of 1/255."""
    level = (LEVELS * x).round().long()
    mean = photons * np.arange(LEVELS + 1) / LEVELS
    most = int(photons + 10 * math.sqrt(photons) + 10)
    share = torch.from_numpy(pdtr(np.arange(most), mean[:, None]))
    # the distribution functions of all levels on one line, each between its level and the next
    line = (share + torch.arange(LEVELS + 1)[:, None]).flatten().to(x.device)
    place = torch.searchsorted(line, level + draws(x).uniform().double())
    return (place - most * level).to(x) / photons


def impulse(x: Images, share: float, draws: Callable[[Images], Noise]) -> Images:
    """A share of all values is 0 or 1: salt and pepper."""
    noise = draws(x)
    hit, salt = noise.uniform() < share, noise.uniform() < 0.5
    return torch.where(hit, salt.to(x), x)
