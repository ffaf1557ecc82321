"""A network becomes a list of operations that computes the same."""

import pytest
import torch
from tiny_nets import NETS, images, tiny
from torch import nn

import rood
from rood.certify.graph import trace
from rood.errors import CapabilityError
from rood.models.backbones import create
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.seeds import generator


@pytest.mark.parametrize("name", NETS)
def test_the_operations_give_what_the_network_gives(name):
    model, x = tiny(name), images(4, seed=3)
    graph = trace(model, (2, 6, 6))
    found, out = graph.values(x), model(x)
    torch.testing.assert_close(found[graph.logits], out.logits)
    torch.testing.assert_close(found[graph.features], out.features)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("small_cnn", {}),
        ("leaky_cnn", {}),
        ("vgg13", {"width": 4}),
        ("cifar_resnet", {"depth": 8}),
        ("resnet18", {"width": 4}),
        ("resnet18", {"width": 4, "stem": "large"}),
        ("preact_resnet", {"width": 4}),
        ("wide_resnet", {"depth": 10, "widen": 1}),
        ("densenet_bc", {"depth": 10, "growth": 4}),
    ],
)
def test_architectures_of_rood_are_covered(name, more):
    model = scored(wrap(create(name, classes=3, channels=3, **more), mean=(0.5,), std=(0.2,)))
    graph = trace(model, (3, 32, 32))
    x = torch.rand(2, 3, 32, 32, generator=generator(0, "x"))
    found, out = graph.values(x), model(x)
    torch.testing.assert_close(found[graph.logits], out.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[graph.head].flatten(), out.head, atol=1e-4, rtol=1e-4)


def test_batch_norm_is_a_part_of_the_layer_before_it():
    graph = trace(rood.zoo.load("digits-ce"), (1, 28, 28))
    kinds = [type(n.layer).__name__ for n in graph.nodes]
    assert kinds == [
        *("NoneType", "Rescale", "Rescale"),
        *(["Convolution", "ReLU"] * 4),
        *("Flatten", "Linear"),
    ]


def test_gradients_reach_the_weights():
    model = tiny("strides").requires_grad_()
    trace(model, (2, 6, 6)).values(images(2))[-1].sum().backward()
    assert all(p.grad is not None for p in model.parameters())


class Odd(nn.Module):
    """A network that does one thing that no list of operations on one image can say."""

    def __init__(self, trick):
        super().__init__()
        self.trick, self.head = trick, nn.Linear(72, 3)

    def forward(self, x):
        return self.head(self.trick(x).flatten(1))


@pytest.mark.parametrize(
    ("trick", "said"),
    [
        (lambda x: x if x.amax() > 0.2 else -x, "amax across the images"),
        (lambda x: x - x.mean(dim=0, keepdim=True), "mean across the images"),
        (lambda x: x.flip(0), "flip"),
        (lambda x: x * x, "the mul of two maps"),
        (lambda x: 1 / (1 + x), "rdiv"),
        (lambda x: x[[1, 0]], "an index that is not of slices"),
        (lambda x: torch.dropout(x, 0.5, True), "at random"),
        (lambda x: x[:, :, ::2, ::2].expand(2, 2, 3, 3).repeat(1, 1, 2, 2), "expand|repeat"),
        (lambda x: x[:, :1] + torch.ones(2, 6, 6).double(), "a constant that enlarges a map"),
    ],
)
def test_what_is_not_covered_is_refused(trick, said):
    model = wrap(Odd(trick).double())
    with pytest.raises(CapabilityError, match=said):
        trace(model, (2, 6, 6))


def test_a_map_that_is_changed_in_place_under_another_name_is_found_out():
    def trick(x):
        x = 2 * x - 1
        torch.relu_(x.flatten(2))  # the same numbers, of which nothing says so
        return x

    with pytest.raises(CapabilityError, match="operations give its outputs"):
        trace(wrap(Odd(trick).double()), (2, 6, 6))


def test_modules_keep_no_hooks_after_an_error():
    model = tiny("mlp")
    model.net.append(nn.Softplus())
    with pytest.raises(CapabilityError):
        trace(model, (2, 6, 6))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
