"""A goal that is hard to climb, in torch and in numpy, and the geometry of a threat in numpy."""

import numpy as np
import torch

from rood.seeds import generator

PHASE = torch.arange(48, dtype=torch.float64)


def images(n=5, size=4):
    g = generator(0, "images")
    return 0.1 + 0.8 * torch.rand(n, 3, size, size, generator=g, dtype=torch.float64)


def bumpy(x):
    """Curved enough that steps fail, with pixels that interact."""
    flat = x.flatten(1)
    return (25 * flat + PHASE).sin().sum(dim=1) - 3 * (flat.sum(dim=1) - 24).square() / 48


def value(v):
    """`bumpy` of one flat image."""
    return np.sin(25 * v + PHASE.numpy()).sum() - 3 * (v.sum() - 24) ** 2 / 48


def slope(v):
    return 25 * np.cos(25 * v + PHASE.numpy()) - 6 * (v.sum() - 24) / 48


def allowed(v, x, eps, norm):
    """The projection of v to the ball around x and the pixel box."""
    delta = v - x
    if norm == "linf":
        delta = np.clip(delta, -eps, eps)
    elif (size := np.sqrt((delta**2).sum())) > eps:
        delta = delta * eps / size
    return np.clip(x + delta, 0, 1)


def uphill(gradient, norm):
    """The steepest direction of unit norm."""
    return np.sign(gradient) if norm == "linf" else gradient / np.sqrt((gradient**2).sum())


class Asked:
    """A goal that remembers every image it was asked about."""

    def __init__(self, goal):
        self.goal, self.images = goal, []

    def __call__(self, x):
        self.images.append(x.detach().clone())
        return self.goal(x)
