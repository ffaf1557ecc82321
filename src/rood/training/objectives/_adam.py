"""Adam for what an objective trains beside the network, with all it keeps in buffers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

BETAS = 0.5, 0.999  # as GANs are trained
TINY = 1e-8


class Adam(nn.Module):
    """Kingma and Ba, *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980."""

    count: Float[Tensor, ""]

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.register_buffer("count", torch.zeros(()))
        for i, p in enumerate(parameters):
            self.register_buffer(f"first_{i}", torch.zeros_like(p))
            self.register_buffer(f"second_{i}", torch.zeros_like(p))

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], loss: Tensor) -> None:
        """One step down the loss."""
        with torch.enable_grad():
            slopes = torch.autograd.grad(loss, list(parameters))
        self.count += 1
        one, two = (1 - beta**self.count for beta in BETAS)
        for i, (p, slope) in enumerate(zip(parameters, slopes, strict=True)):
            first, second = self.get_buffer(f"first_{i}"), self.get_buffer(f"second_{i}")
            first.lerp_(slope, 1 - BETAS[0])
            second.lerp_(slope.square(), 1 - BETAS[1])
            p.sub_(self.lr * (first / one) / ((second / two).sqrt() + TINY))
