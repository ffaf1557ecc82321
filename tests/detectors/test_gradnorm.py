"""GradNorm against autograd and in closed form."""

import references as ref
import torch
from references import close
from torch.nn.functional import log_softmax

from rood.detectors import (
    GradNorm,
)


def test_gradnorm_is_the_norm_of_the_gradient_that_autograd_finds(double, x, features):
    want = []
    for f in torch.from_numpy(features):
        weight = double.model.head.weight.detach().clone().requires_grad_()
        z = weight @ f + double.model.head.bias
        (g,) = torch.autograd.grad(-log_softmax(z, dim=0).sum(), weight)
        want.append(-g.abs().sum().item())
    close(GradNorm(double.model).score(x), want, rtol=1e-8)


def test_gradnorm_equals_its_closed_form(double, x, features):
    z = double.model(x).logits.tolist()
    want = [
        -sum(abs(v) for v in f) * sum(abs(3 * p - 1) for p in ref.softmax(row))
        for f, row in zip(features, z, strict=True)
    ]
    close(GradNorm(double.model).score(x), want, rtol=1e-9)
