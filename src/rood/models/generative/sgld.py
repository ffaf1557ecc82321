"""Stochastic gradient Langevin dynamics on the density implied by a classifier's logits."""

from collections.abc import Callable

import torch
from torch import Generator

from rood.models.model import Model
from rood.shapes import Images, Scores


def log_density(model: Model, x: Images) -> Scores:
    """log p(x) = lse(z(x)) up to a constant; the energy of an image and a class is -z_y."""
    return model(x).logits.float().logsumexp(dim=1)


def sampled(
    density: Callable[[Images], Scores],
    x: Images,
    *,
    steps: int,
    step: float,
    noise: float,
    reach: float | None = None,  # clip each step to this, before the noise
    source: Generator,  # on the images' device
) -> Images:
    """x <- x + step grad log p(x) + noise N(0, 1), clipped to [0, 1], `steps` times.

    Welling and Teh, *Bayesian Learning via Stochastic Gradient Langevin Dynamics*, ICML 2011.
    """
    for _ in range(steps):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(density(x).sum(), x)
        move = step * gradient
        move = move if reach is None else move.clamp(-reach, reach)
        shaken = torch.randn(x.shape, generator=source, device=source.device, dtype=x.dtype)
        x = (x.detach() + move + noise * shaken).clamp(0, 1)
    return x.detach()
