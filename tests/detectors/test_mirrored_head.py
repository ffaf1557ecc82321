"""MirroredHead: the mean of the scalar head's outputs for both images."""

import pytest
import torch
from references import close

from rood.detectors import Mirrored, MirroredHead
from rood.errors import CapabilityError


def test_the_score_is_the_mean_of_both_outputs(double, x):
    d = MirroredHead.example(double.model)
    layer = d.model.scalar_head
    weight, bias = layer.weight[0].tolist(), layer.bias.item()
    by_hand = []
    for image in x:
        views = torch.stack([image, torch.stack([c.flip(1) for c in image])])
        rows = d.model(views).features.tolist()
        by_hand.append(
            sum(sum(w * f for w, f in zip(weight, r, strict=True)) + bias for r in rows) / 2
        )
    close(d.score(x), torch.tensor(by_hand, dtype=torch.float64).numpy(), rtol=1e-9)
    close(Mirrored(d.base).score(x), d.score(x).numpy(), rtol=1e-12)


def test_a_network_without_a_head_is_refused(double):
    with pytest.raises(CapabilityError, match="scalar head"):
        MirroredHead(double.model)
