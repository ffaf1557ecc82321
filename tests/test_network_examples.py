"""Networks of examples/ are what they say they are."""

import os
from pathlib import Path

import pytest
import torch

import rood
from examples import masked, published
from rood.models import checkpoint
from rood.models.backbones.densenet_bc import DenseNetBC
from rood.models.load import load_network


@pytest.mark.skipif(
    "ROOD_DATA" not in os.environ, reason="ROOD_DATA names no folder of real images"
)
@pytest.mark.parametrize("name", ["odin_densenet_cifar10", "oecc_densenet_cifar100"])
def test_a_published_densenet_is_the_network_that_rood_knows(name):
    file = f"{name.replace('densenet', 'densenet100')}.pt"
    weights = Path(os.environ["ROOD_DATA"], "weights", file)
    if not weights.exists():
        pytest.skip(f"ROOD_DATA has no {file}")
    theirs, _ = load_network(f"examples.published:{name}", weights=weights, shape=(3, 32, 32))
    mean, std = ([v / 255 for v in values] for values in (published.MEAN, published.STD))
    net = DenseNetBC.from_state(checkpoint.load_state(weights), classes=theirs.classes)
    ours = rood.wrap(net, mean=mean, std=std)
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(theirs(x).logits, ours(x).logits, rtol=1e-4, atol=1e-4)


def test_masked_networks_predict_as_before_and_hide_their_gradient():
    x = (5 * torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))).round() / 5
    plain = rood.zoo.load("digits-ce")
    right = _gradient(plain, x)
    for model, wrong in (
        (masked.rounded_pixels(), torch.zeros_like(right)),
        (masked.turned_gradient(), -right),
    ):
        with torch.no_grad():
            torch.testing.assert_close(model(x).logits, plain(x).logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(_gradient(model, x), wrong, rtol=1e-3, atol=1e-4)


def _gradient(model, x):
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(model(x).logits.amax(dim=1).sum(), x)
    return found
