"""A running mean of the weights, which is evaluated and delivered in their place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rood.models.model import Model


class Average:
    """w_mean = d w_mean + (1 - d) w after each step, d = min(decay, (1 + t) / (10 + t)).

    t counts the steps: the first weights are forgotten soon. Running statistics of batch norm are
    averaged alike. With decay 0 there is no mean, and nothing here does anything.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.decay = decay
        self.mean = {k: v.clone() for k, v in _floats(model).items()} if decay else {}

    @torch.no_grad()
    def see(self, model: Model, steps: int) -> None:
        """Take in the weights after so many steps."""
        if self.decay:
            share = 1 - min(self.decay, (1 + steps) / (10 + steps))
            torch._foreach_lerp_(list(self.mean.values()), list(_floats(model).values()), share)

    @contextmanager
    def shown(self, model: Model) -> Iterator[None]:
        """The model with the mean for its weights, for the block."""
        weights = {k: v.clone() for k, v in _floats(model).items()} if self.decay else {}
        self.put_into(model)
        try:
            yield
        finally:
            _write(weights, model)

    def put_into(self, model: Model) -> None:
        """Give the model the mean for good."""
        _write(self.mean, model)


def _floats(model: Model) -> dict[str, Tensor]:
    return {k: v for k, v in model.state_dict().items() if v.is_floating_point()}


@torch.no_grad()
def _write(values: dict[str, Tensor], model: Model) -> None:
    own = model.state_dict()
    for name, value in values.items():
        own[name].copy_(value)
