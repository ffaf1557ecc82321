"""Exponential moving average (EMA) of the weights, evaluated and delivered in their place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rood.models.model import Model


class EMA:
    """w_mean = d w_mean + (1 - d) w after each step t, d = min(decay, (1 + t) / (10 + t)).

    The small d of the first steps forgets the initial weights soon. Running statistics of batch
    norm are averaged too. With decay 0 there is no mean, and every method does nothing.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.decay = decay
        self.mean = {k: v.clone() for k, v in _floats(model).items()} if decay else {}

    @torch.no_grad()
    def see(self, model: Model, steps: int) -> None:
        """Update the mean with the weights after `steps` steps."""
        if self.decay:
            share = 1 - min(self.decay, (1 + steps) / (10 + steps))
            torch._foreach_lerp_(list(self.mean.values()), list(_floats(model).values()), share)

    @contextmanager
    def shown(self, model: Model) -> Iterator[None]:
        """Use the mean as the weights of the model inside the block."""
        weights = {k: v.clone() for k, v in _floats(model).items()} if self.decay else {}
        self.put_into(model)
        try:
            yield
        finally:
            _write(weights, model)

    def put_into(self, model: Model) -> None:
        """Replace the weights of the model by the mean."""
        _write(self.mean, model)


def _floats(model: Model) -> dict[str, Tensor]:
    return {k: v for k, v in model.state_dict().items() if v.is_floating_point()}


@torch.no_grad()
def _write(values: dict[str, Tensor], model: Model) -> None:
    own = model.state_dict()
    for name, value in values.items():
        own[name].copy_(value)
