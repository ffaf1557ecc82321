"""Small networks of how images look, for the tests: every weight has a part in what they do."""

from typing import Any

import torch
from torch import Tensor

from rood.models.generative.autoencoder import AutoEncoderNetwork
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.testing.world import World, blobs


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def eight_bit(*shape: int, seed: int = 0) -> Tensor:
    return (255 * drawn(*shape, seed=seed)).round() / 255


def flow_model(world: World, shaken: float = 0.05, **settings: Any) -> Model:
    """Weights that start at 0 are given others; then the flow sees some images."""
    model = GlowNetwork.beside(world.model, **{"levels": 2, "steps": 2, "width": 8} | settings)
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.net.parameters():
            p.add_(shaken * torch.randn(p.shape, generator=g))
    GlowNetwork.of(model).settle(eight_bit(64, 3, 16, 16), g)
    return model


def trained_coder(world: World) -> Model:
    """An auto-encoder that knows the toy world's blobs."""
    model = AutoEncoderNetwork.beside(world.model, size=8, width=8, numbers=16)
    coder = AutoEncoderNetwork.of(model).requires_grad_()
    x, _ = blobs(600, seed=1)
    optimizer = torch.optim.Adam(coder.parameters(), lr=1e-2)
    for step in range(150):
        some = x[step * 100 % 600 :][:100]
        optimizer.zero_grad()
        (coder.reconstruct(some) - some).square().sum(dim=(1, 2, 3)).mean().backward()
        optimizer.step()
    coder.requires_grad_(False)
    return model
