"""Classes that are certain do not change, and those of a linear network are certain to the end."""

import pytest
import torch
from escapes import climbed
from tiny_nets import images, tiny
from torch import nn

from rood.certify.classes import Behind, certain
from rood.models.wrap import wrap
from rood.threat import L2, Linf


@pytest.mark.parametrize(("method", "eps"), [("ibp", 0.02), ("crown", 0.08)])
def test_no_attack_changes_a_certain_class(method, eps):
    model, x = tiny("strides", scale=1.5), images(12)
    classes = model(x).logits.argmax(dim=1)
    sure = certain(model, x, classes, Linf(eps), method)
    assert 0 < int(sure.sum()) < 12
    for wanted in range(3):
        mine = sure & (classes == wanted)
        now = climbed(Behind(model, wanted).score_images, x[mine], Linf(eps), 1)
        assert torch.equal(model(now).logits.argmax(dim=1), classes[mine])


@pytest.mark.parametrize("norm", [Linf, L2])
def test_classes_of_a_linear_network_are_certain_up_to_the_boundary(norm):
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double())
    x = 0.4 + 0.2 * images(30)
    logits, weight = model(x).logits, model.head.weight
    classes = logits.argmax(dim=1)
    gap = logits.gather(1, classes[:, None]) - logits  # (b, k)
    by = weight[classes][:, None] - weight[None]
    dual = by.abs().sum(-1) if norm is Linf else by.norm(dim=-1)
    distance = (gap / dual).nan_to_num(torch.inf).amin(dim=1)
    middle = distance.sort().values[14:16]
    found = certain(model, x, classes, norm(float(middle.mean())))
    assert torch.equal(found, distance > middle[0])


def test_an_image_without_a_label_or_with_a_wrong_one_is_not_certain():
    model, x = tiny("mlp"), images(6)
    classes = model(x).logits.argmax(dim=1)
    assert not certain(model, x, torch.full((6,), -1), Linf(1e-6)).any()
    assert not certain(model, x, (classes + 1) % 3, Linf(1e-6)).any()
    assert certain(model, x, classes, Linf(1e-6)).all()
