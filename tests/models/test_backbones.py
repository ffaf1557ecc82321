"""Every architecture: its size, its first weights, its layers, and the parts written by hand."""

import inspect
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import affine_grid, conv2d, cross_entropy, grid_sample, interpolate

from rood import data
from rood.detectors import LayeredMahalanobis, RankFeat
from rood.errors import CapabilityError, CheckpointError, InputError, UnknownNameError
from rood.models import backbones, checkpoint
from rood.models.backbones import (
    Backbone,
    CifarResNet,
    DenseNet121,
    DenseNetBC,
    ResNet18,
    ResNet34,
    ViT,
)
from rood.models.backbones._norm import normaliser
from rood.models.backbones.stn_cnn import transformed
from rood.models.taps import changing
from rood.models.wrap import wrap

NAMES = backbones.registry.names()

# every option of every architecture, other than its default, and small
SMALL: dict[str, dict[str, Any]] = {
    "cifar_resnet": {"depth": 8, "width": 4, "norm": "group"},
    "densenet121": {"growth": 4, "stem": "large"},
    "densenet_bc": {"depth": 16, "growth": 4, "init": "aloe"},
    "certified": {
        "size": 16,
        "backbone": "vgg13",
        "architecture": {"width": 8},
        "axes": 3,
        "centroids": 2,
    },
    "leaky_cnn": {"width": 4, "features": 8},
    "plain_cnn": {"width": 4, "features": 8, "side": 6, "depth": 1},
    "preact_resnet": {"width": 4, "norm": "group", "depths": (1, 2)},
    "resnet18": {"width": 4, "norm": "instance", "stem": "large"},
    "resnet34": {"width": 4, "norm": "group", "stem": "large"},
    "small_cnn": {"width": 4, "features": 8},
    "stn_cnn": {"width": 4, "features": 8},
    "vgg13": {"width": 8},
    "vit": {"size": 16, "patch": 8, "width": 12, "depth": 2, "heads": 2},
    "wide_resnet": {"depth": 10, "widen": 1, "drop": 0.1, "norm": "instance"},
}

PUBLISHED = [
    ("cifar_resnet", {"depth": 20}, 269_722),
    ("cifar_resnet", {"depth": 56}, 853_018),
    ("densenet121", {"classes": 10}, 6_956_298),
    ("densenet121", {"classes": 1000, "stem": "large"}, 7_978_856),
    ("densenet_bc", {"classes": 10}, 769_162),
    ("densenet_bc", {"classes": 43}, 780_481),
    ("densenet_bc", {"classes": 100}, 800_032),
    ("preact_resnet", {"classes": 10}, 11_172_170),
    ("resnet18", {"classes": 10}, 11_173_962),
    ("resnet18", {"classes": 100}, 11_220_132),
    ("resnet18", {"classes": 1000, "stem": "large"}, 11_689_512),
    ("resnet34", {"classes": 10}, 21_282_122),
    ("resnet34", {"classes": 1000, "stem": "large"}, 21_797_672),
    ("vgg13", {"classes": 10}, 9_935_434),
    ("vit", {"classes": 1000, "size": 224, "patch": 16, "width": 768, "heads": 12}, 86_567_656),
    ("wide_resnet", {"classes": 10, "depth": 40, "widen": 2}, 2_243_546),
    ("wide_resnet", {"classes": 100, "depth": 40, "widen": 2}, 2_255_156),
    ("wide_resnet", {"classes": 10, "depth": 16, "widen": 4}, 2_748_890),
    ("wide_resnet", {"classes": 10, "depth": 28, "widen": 4}, 5_849_050),
    ("wide_resnet", {"classes": 10, "depth": 28, "widen": 10}, 36_479_194),
]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def images(b: int = 4, channels: int = 3, side: int = 64) -> Tensor:
    return drawn(b, channels, side, side)


def small(name: str, channels: int = 3) -> Backbone:
    return backbones.create(name, classes=5, channels=channels, seed=1, **SMALL[name])


def used(name: str, channels: int = 3) -> Backbone:
    """With statistics of its own: fresh ones make batch norm the identity."""
    net = small(name, channels)
    net(images(8, channels))
    return net.eval()


def on_meta(name: str, **settings: Any) -> Backbone:
    with torch.device("meta"):
        return backbones.registry.get(name)(**settings)


def parameters_of(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


# sizes and settings


@pytest.mark.parametrize(("name", "settings", "parameters"), PUBLISHED)
def test_parameters_are_as_many_as_published(
    name: str, settings: dict[str, Any], parameters: int
) -> None:
    assert parameters_of(on_meta(name, **settings)) == parameters


def test_a_box_keeps_its_width_in_a_plain_network_as_it_starts() -> None:
    """The sum of a row's |w| is 2, of which a ReLU leaves one half."""
    for layer in backbones.create("plain_cnn", classes=10, channels=1).modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert layer.weight.flatten(1).abs().sum(dim=1).mean().item() == pytest.approx(
                2, rel=0.2
            )


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "cifar_resnet", "wide_resnet"])
def test_every_norm_has_the_same_parameters(name: str) -> None:
    counts = {parameters_of(on_meta(name, norm=n)) for n in ("batch", "instance", "group")}
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("name", "d"),
    [("densenet121", 1024), ("densenet_bc", 342), ("resnet34", 512), ("stn_cnn", 128)],
)
def test_features_are_as_many_as_published(name: str, d: int) -> None:
    assert on_meta(name).head.in_features == d


@pytest.mark.parametrize("name", NAMES)
def test_settings_hold_every_argument_as_it_was_given(name: str) -> None:
    signature = inspect.signature(backbones.registry.cls(name).__init__).parameters
    assert set(SMALL[name]) | {"self", "classes", "channels"} == set(signature)
    for option, value in SMALL[name].items():
        assert signature[option].default != value
    assert small(name, 1).settings() == {"classes": 5, "channels": 1} | SMALL[name]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("resnet18", {"norm": "layer"}, "norm"),
        ("wide_resnet", {"norm": "none"}, "norm"),
        ("resnet34", {"stem": "huge"}, "stem"),
        ("densenet121", {"stem": "huge"}, "stem"),
        ("densenet_bc", {"init": "lecun"}, "init"),
        ("densenet_bc", {"depth": 99}, "depth = 6 n"),
        ("densenet_bc", {"growth": 0}, "growth >= 1"),
        ("cifar_resnet", {"depth": 18}, "depth = 6 n"),
        ("vit", {"patch": 5}, "size = n patch"),
        ("vit", {"heads": 5}, "width = m heads"),
    ],
)
def test_settings_that_make_no_network_are_refused(
    name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        backbones.create(name, classes=10, **settings)


# what every one of them promises


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_head_is_the_last_layer_and_features_are_its_input(name: str, channels: int) -> None:
    net = used(name, channels)
    model = wrap(net, mean=[0.4] * channels, std=[0.2] * channels)
    out = model(images(channels=channels))
    assert model.head is net.head
    assert out.logits.std() > 1e-5  # plain_cnn starts small
    torch.testing.assert_close(net.head(out.features), out.logits)
    assert model(images(0, channels)).logits.shape == (0, 5)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_alone_gets_what_it_gets_among_others(name: str) -> None:
    net, x = used(name).double(), images().double()
    torch.testing.assert_close(torch.cat([net(i[None]) for i in x]), net(x))


@pytest.mark.parametrize("name", NAMES)
def test_memory_order_and_precision_change_nothing(name: str) -> None:
    net, x = used(name), images()
    right = net(x)
    exact = net.double()(x.double())
    assert exact.dtype == torch.float64
    torch.testing.assert_close(right.double(), exact, rtol=1e-4, atol=1e-4)
    other = net.float().to(memory_format=torch.channels_last)
    found = other(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_equals_finite_differences(name: str) -> None:
    net, x = used(name).double(), images(2).double().requires_grad_()
    direction = drawn(*x.shape, seed=1).double() - 0.5
    weights = drawn(5, seed=2).double()
    gradient = torch.autograd.grad((net(x) @ weights).sum(), x)[0]
    slope = (gradient * direction).sum()
    h = 1e-8  # few ReLUs turn within it
    with torch.no_grad():
        ends = [(net(x + s * direction) @ weights).sum() for s in (h, -h)]
    torch.testing.assert_close((ends[0] - ends[1]) / (2 * h), slope, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_norm_of_the_gradient_can_be_differentiated(name: str) -> None:
    net, x = used(name), images(2).requires_grad_()
    (first,) = torch.autograd.grad(net(x).logsumexp(dim=1).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.norm(), x)
    assert second.isfinite().all()
    assert second.abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_training_reaches_every_weight(name: str) -> None:
    net = small(name)
    cross_entropy(net(images(6)), torch.arange(6) % 5).backward()
    for weight, p in net.named_parameters():
        assert p.grad is not None, weight
        assert p.grad.abs().sum() > 0, weight


@pytest.mark.parametrize("name", NAMES)
def test_stages_are_maps_that_the_logits_depend_on(name: str) -> None:
    model, x = wrap(used(name)), images(2).requires_grad_()
    taps = model.stages(x)
    assert len(taps) >= 2
    out = model(x, taps)
    assert len(out.maps) == len(taps)
    assert len({m.shape[2:] for m in out.maps}) == len(taps)
    for tap, maps in zip(taps, out.maps, strict=True):
        (gradient,) = torch.autograd.grad(maps.square().sum(), x, retain_graph=True)
        assert (gradient.flatten(1).norm(dim=1) > 0).all(), tap
        (layer,) = model.layers([tap])
        with changing(layer, torch.zeros_like):
            assert not torch.allclose(model(x).logits, out.logits), tap


@pytest.mark.parametrize("name", NAMES)
def test_layered_detectors_take_it(name: str) -> None:
    model, x = wrap(used(name)), images(30)
    layered = LayeredMahalanobis(model).fit([(x, torch.arange(30) % 5)])
    for detector in (layered, RankFeat(model)):
        assert detector.score(x[:3]).isfinite().all()


# first weights


def test_convolutions_start_by_hes_rule() -> None:
    net = backbones.create("vgg13", classes=10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            he = math.sqrt(2 / (9 * layer.in_channels))
            assert layer.weight.std().item() == pytest.approx(he, rel=0.05)
            assert (layer.bias == 0).all()


def test_aloes_rule_ignores_the_size_of_a_convolution() -> None:
    net = backbones.create("densenet_bc", classes=10, depth=40, init="aloe")
    convolutions = [m.weight for m in net.modules() if isinstance(m, nn.Conv2d)]
    for weight in convolutions:
        assert weight.std().item() == pytest.approx(math.sqrt(2 / 16), rel=0.1)
    assert torch.cat([w.flatten() for w in convolutions]).std().item() == pytest.approx(
        math.sqrt(2 / 16), rel=0.01
    )
    plain = backbones.create("densenet_bc", classes=10, depth=40)
    widest = plain.body.block3[-1].conv1
    he = math.sqrt(2 / widest.in_channels)
    assert widest.weight.std().item() == pytest.approx(he, rel=0.05)


def test_a_spatial_transformer_starts_beside_the_identity() -> None:
    net = backbones.create("stn_cnn", classes=43)
    x = interpolate(images(2, side=8), size=32, mode="bilinear")
    moved = (net.transformer(x) - x).abs()
    assert 0 < moved.mean() < 0.02


# normalisation


@pytest.mark.parametrize("name", ["resnet18", "wide_resnet"])
@pytest.mark.parametrize(("norm", "shared"), [("batch", True), ("instance", False)])
def test_only_batch_norm_mixes_images_in_training(name: str, norm: str, shared: bool) -> None:
    width = {"resnet18": {"width": 4}, "wide_resnet": {"depth": 10, "widen": 1}}[name]
    net = backbones.create(name, classes=5, norm=norm, **width).train().double()
    x = images().double()
    alone = torch.cat([net(i[None]) for i in x])
    assert torch.allclose(net(x), alone) != shared


def test_group_norm_has_32_groups_or_as_many_as_divide_the_channels() -> None:
    net = backbones.create("wide_resnet", classes=5, norm="group", depth=10, widen=3)
    found = {m.num_channels: m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)}
    assert found == {16: 8, 48: 16, 96: 32, 192: 32}


def test_instance_norm_equals_torchs_and_refuses_a_single_pixel() -> None:
    ours, theirs = normaliser("instance", 6), nn.InstanceNorm2d(6, affine=True)
    theirs.load_state_dict({n: drawn(6, seed=len(n)) for n in ("weight", "bias")})
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(drawn(2, 6, 3, 4)), theirs(drawn(2, 6, 3, 4)))
    net = backbones.create("resnet18", classes=5, norm="instance", width=4)
    refused(InputError, "larger images", net, images(2, side=8))


# layers of the Mahalanobis paper


@pytest.mark.parametrize(
    ("name", "channels"),
    [("resnet34", [64, 64, 128, 256, 512]), ("densenet_bc", [24, 108, 150, 342])],
)
def test_lees_layers_have_the_published_channels(name: str, channels: list[int]) -> None:
    model = wrap(backbones.create(name, classes=10))
    out = model(images(1), model.net.lee_layers)
    assert [m.shape[1] for m in out.maps] == channels
    assert all((m >= 0).all() for m in (out.maps if name == "resnet34" else out.maps[-1:]))
    torch.testing.assert_close(out.maps[-1].mean(dim=(2, 3)), out.features)


# large images


@pytest.mark.parametrize("make", [ResNet18, ResNet34, DenseNet121])
def test_a_large_stem_divides_the_side_by_four(make: Callable[..., Backbone]) -> None:
    for stem, side in (("small", 64), ("large", 16)):
        net = on_meta(make.__module__.rpartition(".")[2], stem=stem)
        seen: list[torch.Size] = []
        first = net.body.block1[0].conv1 if make is DenseNet121 else net.blocks[0].conv1
        first.register_forward_hook(lambda m, x, y, seen=seen: seen.append(y.shape))
        net.eval()(torch.empty(1, 3, 64, 64, device="meta"))
        assert seen[0][2:] == (side, side)


# plain references, from the papers


class Plain:
    """Layers by their name in a state dict, each as its formula."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def conv(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = self.state[f"{name}.weight"]
        bias = self.state.get(f"{name}.bias")
        return conv2d(x, weight, bias, stride=stride, padding=weight.shape[2] // 2)

    def bn(self, x: Tensor, name: str) -> Tensor:
        words = ("running_mean", "running_var", "weight", "bias")
        mean, var, scale, shift = (self.state[f"{name}.{w}"].view(1, -1, 1, 1) for w in words)
        return (x - mean) / (var + 1e-5).sqrt() * scale + shift

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]


def means(x: Tensor) -> Tensor:
    return x.sum(dim=(2, 3)) / (x.shape[2] * x.shape[3])


def plain_resnet18(p: Plain, x: Tensor) -> Tensor:
    x = p.bn(p.conv(x, "stem"), "norm").clamp(min=0)
    for i in range(8):
        block, stride = f"blocks.{i}", 2 if i in (2, 4, 6) else 1
        f = p.bn(p.conv(x, f"{block}.conv1", stride), f"{block}.norm1").clamp(min=0)
        f = p.bn(p.conv(f, f"{block}.conv2"), f"{block}.norm2")
        if stride == 2:
            x = p.bn(p.conv(x, f"{block}.shortcut.0", 2), f"{block}.shortcut.1")
        x = (x + f).clamp(min=0)
    return p.linear(means(x), "head")


def plain_wide_resnet(p: Plain, x: Tensor) -> Tensor:
    x = p.conv(x, "stem")
    for i in range(6):  # WRN-16-2
        block, stride = f"blocks.{i}", 2 if i in (2, 4) else 1
        a = p.bn(x, f"{block}.norm1").clamp(min=0)
        f = p.bn(p.conv(a, f"{block}.conv1", stride), f"{block}.norm2").clamp(min=0)
        x = p.conv(a, f"{block}.project", stride) if i in (0, 2, 4) else x
        x = x + p.conv(f, f"{block}.conv2")
    return p.linear(means(p.bn(x, "norm").clamp(min=0)), "head")


def plain_preact_resnet(p: Plain, x: Tensor) -> Tensor:
    return plain_preact(p, x, blocks=8, halved=(2, 4, 6))


def plain_uneven_preact_resnet(p: Plain, x: Tensor) -> Tensor:
    return plain_preact(p, x, blocks=5, halved=(1, 3))


def plain_preact(p: Plain, x: Tensor, blocks: int, halved: tuple[int, ...]) -> Tensor:
    def silu(z: Tensor) -> Tensor:
        return z / (1 + (-z).exp())

    x = p.conv(x, "stem")
    for i in range(blocks):
        block, stride = f"blocks.{i}", 2 if i in halved else 1
        a = silu(p.bn(x, f"{block}.norm1"))
        f = silu(p.bn(p.conv(a, f"{block}.conv1", stride), f"{block}.norm2"))
        x = p.conv(a, f"{block}.project", stride) if stride == 2 else x
        x = x + p.conv(f, f"{block}.conv2")
    return p.linear(means(silu(p.bn(x, "norm"))), "head")


def plain_densenet_bc(p: Plain, x: Tensor) -> Tensor:
    x = p.conv(x, "stem")
    for b in (1, 2, 3):
        for i in range(2):  # of depth 16
            layer = f"body.block{b}.{i}"
            f = p.conv(p.bn(x, f"{layer}.norm1").clamp(min=0), f"{layer}.conv1")
            f = p.conv(p.bn(f, f"{layer}.norm2").clamp(min=0), f"{layer}.conv2")
            x = torch.cat([x, f], dim=1)
        if b < 3:
            name = f"body.transition{b}"
            x = p.conv(p.bn(x, f"{name}.norm1").clamp(min=0), f"{name}.conv1")
            x = (x[..., ::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, ::2] + x[..., 1::2, 1::2]) / 4
    return p.linear(means(p.bn(x, "norm").clamp(min=0)), "head")


def plain_vgg13(p: Plain, x: Tensor) -> Tensor:
    for i in range(0, 25, 5):
        x = p.conv(p.conv(x, f"layers.{i}").clamp(min=0), f"layers.{i + 2}").clamp(min=0)
        x = torch.stack([x[..., r::2, c::2] for r in (0, 1) for c in (0, 1)]).amax(dim=0)
    x = p.linear(means(x), "hidden.1").clamp(min=0)
    return p.linear(p.linear(x, "hidden.4").clamp(min=0), "head")


@pytest.mark.parametrize(
    ("name", "settings", "plain"),
    [
        ("resnet18", {"width": 4}, plain_resnet18),
        ("preact_resnet", {"width": 4}, plain_preact_resnet),
        ("preact_resnet", {"width": 4, "depths": [1, 2, 2]}, plain_uneven_preact_resnet),
        ("wide_resnet", {"depth": 16, "widen": 2}, plain_wide_resnet),
        ("densenet_bc", {"depth": 16, "growth": 4}, plain_densenet_bc),
        ("vgg13", {"width": 4}, plain_vgg13),
    ],
)
def test_networks_equal_their_plain_formulas(
    name: str, settings: dict[str, Any], plain: Callable[[Plain, Tensor], Tensor]
) -> None:
    net = backbones.create(name, classes=5, **settings).double()
    net(drawn(8, 3, 32, 32, seed=3).double())  # statistics of its own
    x = images(3, side=32).double()
    torch.testing.assert_close(net.eval()(x), plain(Plain(net.state_dict()), x))


def test_a_plain_shortcut_skips_pixels_and_fills_channels_on_both_sides() -> None:
    shortcut = backbones.create("cifar_resnet", classes=5, depth=8, width=4).blocks[1].shortcut
    x = images(2, channels=4, side=6)
    right = torch.zeros(2, 8, 3, 3)
    for i in range(3):
        for j in range(3):
            right[:, 2:6, i, j] = x[:, :, 2 * i, 2 * j]
    assert torch.equal(shortcut(x), right)


def test_hidden_layers_of_vgg13_drop_half_of_their_input_in_training_alone() -> None:
    net = backbones.create("vgg13", classes=5, width=8)
    drops = [m for m in net.modules() if isinstance(m, nn.Dropout)]
    assert [m.p for m in drops] == [0.5, 0.5]
    x = images(2, side=32)
    with torch.random.fork_rng():
        assert not torch.equal(net.train()(x), net(x))
        assert torch.equal(net.eval()(x), net(x))


# the parts written by hand


def test_the_transformer_samples_as_torch_does() -> None:
    x = drawn(3, 2, 9, 12).double().requires_grad_()
    turn = drawn(3, 2, 3, seed=1).double() - 0.5
    theta = (turn + torch.tensor([[1.0, 0, 0], [0, 1, 0]])).requires_grad_()
    grid = affine_grid(theta, [3, 2, 9, 12], align_corners=False)
    right = grid_sample(x, grid, align_corners=False)
    assert (right == 0).any()  # some of it lies outside
    found = transformed(x, theta)
    torch.testing.assert_close(found, right)
    weights = drawn(*x.shape, seed=2).double()
    for a, b in zip(
        *(torch.autograd.grad((y * weights).sum(), (x, theta)) for y in (found, right)), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_a_block_of_the_transformer_equals_torchs() -> None:
    ours = small("vit").blocks[0].double()
    theirs = nn.TransformerEncoderLayer(
        12, 2, 48, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    words = {"attention.qkv.": "self_attn.in_proj_", "attention.out": "self_attn.out_proj"}
    words |= {"wide": "linear1", "narrow": "linear2"}
    state = {}
    for name, tensor in ours.state_dict().items():
        for mine, other in words.items():
            name = name.replace(mine, other)
        state[name] = tensor
    theirs.load_state_dict(state)
    theirs.norm1.eps = theirs.norm2.eps = 1e-6
    t = drawn(3, 5, 12).double()
    found = ours(t.transpose(1, 2)[:, :, None])
    torch.testing.assert_close(found[:, :, 0].transpose(1, 2), theirs.train()(t))


def test_a_vit_looks_at_the_place_of_a_patch_and_takes_other_sizes() -> None:
    net = used("vit")
    net.positions.data = drawn(*net.positions.shape)
    x = images(1, side=16)
    swapped = torch.cat([x[:, :, 8:], x[:, :, :8]], dim=2)
    assert not torch.allclose(net(swapped), net(x))
    net.positions.data[:, :, 1:] = net.positions.data[:, :, 1:2]
    torch.testing.assert_close(net(swapped), net(x))
    wide = drawn(1, 3, 24, 48)
    tall = torch.cat([wide[..., :24], wide[..., 24:]], dim=2)  # the same patches elsewhere
    torch.testing.assert_close(net(tall), net(wide))
    refused(InputError, "sides divisible by 8, got 20x16", net, drawn(1, 3, 20, 16))


def test_positions_are_resized_as_a_picture() -> None:
    net = ViT(size=16, patch=4, width=6, heads=2, depth=1)
    ramp = torch.arange(4.0).expand(4, 4)
    net.positions.data[:, :, 1:] = ramp.flatten()
    found = net._positions(4, 8)[0, 0, 1:].view(4, 8)
    right = interpolate(ramp[None, None], (4, 8), mode="bicubic")[0, 0]
    torch.testing.assert_close(found, right)
    torch.testing.assert_close(net._positions(4, 8)[..., 0], net.positions[..., 0])


# weights from elsewhere


def foreign(net: Backbone, depths: list[int], **words: str) -> dict[str, Tensor]:
    """Its weights as most of the public residual networks name theirs, without batch counters."""
    places = [f"layer{s}.{i}" for s, depth in enumerate(depths, start=1) for i in range(depth)]
    state = {}
    for name, tensor in net.state_dict().items():
        for ours, theirs in {"stem": "conv1", "norm": "bn1", "head": "fc"}.items():
            name = re.sub(rf"^{ours}\.", f"{words.get(theirs, theirs)}.", name)
        name = re.sub(r"^blocks\.(\d+)", lambda m: places[int(m[1])], name)
        name = re.sub(r"norm(\d)", r"bn\1", name).replace(
            "shortcut", words.get("short", "shortcut")
        )
        if "num_batches" not in name:
            state[name] = tensor
    return state


@pytest.mark.parametrize(
    ("name", "depths", "words"),
    [
        ("resnet18", [2, 2, 2, 2], {}),
        ("resnet34", [3, 4, 6, 3], {"fc": "linear"}),
        ("resnet18", [2, 2, 2, 2], {"short": "downsample"}),
    ],
)
def test_residual_weights_are_found_under_their_usual_names(
    name: str, depths: list[int], words: dict[str, str]
) -> None:
    net = backbones.create(name, classes=5, width=4, seed=7)
    net(images())  # statistics of its own
    before = torch.random.get_rng_state()
    found = type(net).from_state(foreign(net, depths, **words), classes=5, width=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(found.eval()(images()), net.eval()(images()), rtol=0, atol=0)
    assert found.state_dict()["norm.num_batches_tracked"] == 0


@pytest.mark.parametrize("name", ["vgg13", "vit", "wide_resnet"])
def test_other_weights_are_found_under_our_names(name: str) -> None:
    net = used(name)
    found = type(net).from_state(net.state_dict(), **net.settings()).eval()
    assert torch.equal(found(images()), net(images()))


def test_weights_of_another_network_are_refused() -> None:
    state = backbones.create("cifar_resnet", classes=10, depth=8).state_dict()
    plain = {"conv1.weight": state["stem.weight"], "layer9.0.conv1.weight": state["stem.weight"]}
    for wrong, said in [
        (plain, r"expected 'blocks\.0\.conv1\.weight' of shape \(16, 16, 3, 3\) for a CifarResNet"),
        ({"weight": torch.zeros(1)}, "got None: other settings or another network"),
    ]:
        with pytest.raises(CheckpointError, match=said):
            CifarResNet.from_state(wrong, depth=8)
    wide = on_meta("cifar_resnet", classes=7, depth=8).state_dict()
    with pytest.raises(CheckpointError, match=r"'head\.bias' of shape \(10,\).*got \(7,\)"):
        CifarResNet.from_state(wide, depth=8)


CIFAR = ([v / 255 for v in (125.3, 123.0, 113.9)], [v / 255 for v in (63.0, 62.1, 66.7)])
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.mark.slow
@pytest.mark.skipif(
    "ROOD_DATA" not in os.environ, reason="ROOD_DATA names no folder of real images"
)
@pytest.mark.parametrize(
    ("file", "make", "settings", "normal", "accuracy"),
    [
        ("odin_densenet100_cifar10", DenseNetBC, {}, CIFAR, 0.948),
        ("akamaster_resnet20_cifar10", CifarResNet, {"depth": 20}, IMAGENET, 0.910),
        ("akamaster_resnet56_cifar10", CifarResNet, {"depth": 56}, IMAGENET, 0.940),
    ],
)
def test_public_weights_are_as_accurate_as_they_were(
    file: str,
    make: type[Backbone],
    settings: dict[str, Any],
    normal: tuple[list[float], list[float]],
    accuracy: float,
) -> None:
    folder = Path(os.environ["ROOD_DATA"])
    weights = folder / "weights" / f"{file}.pt"
    if not weights.exists():
        pytest.skip(f"ROOD_DATA has no {file}")
    net = make.from_state(checkpoint.load_state(weights), **settings)
    model = wrap(net, mean=normal[0], std=normal[1])
    real = data.load(f"npz:{folder}/cifar10_test.npz")
    x, y = real.pixels()[:500], real.labels[:500]
    with torch.no_grad():
        right = torch.cat([model(part).logits.argmax(dim=1) for part in x.split(10)]) == y
    assert right.double().mean().item() == pytest.approx(accuracy, abs=0.003)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_every_backbone_runs_and_can_be_rebuilt(name: str, shape: tuple[int, int, int]) -> None:
    before = torch.random.get_rng_state()
    net = backbones.create(name, classes=7, channels=shape[0], seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    model = wrap(net)
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    out = model(x)
    assert out.logits.shape == (2, 7)
    assert model.head is net.head
    assert out.logits.std() > 1e-5  # plain_cnn starts small
    settings = json.loads(json.dumps(net.settings()))
    again = backbones.create(net.name, seed=3, **settings)
    assert wrap(again).fingerprint() == model.fingerprint()
    other = backbones.create(net.name, seed=4, **settings)
    assert wrap(other).fingerprint() != model.fingerprint()


@pytest.mark.parametrize("name", NAMES)
def test_every_backbone_names_its_source(name: str) -> None:
    assert re.search(r"arXiv:\d{4}\.\d{4,5}", backbones.registry.cls(name).__doc__ or "")


def test_backbones_refuse_what_makes_no_network() -> None:
    refused(InputError, "classes >= 2", backbones.create, "small_cnn", classes=1)
    refused(InputError, "depth = 6 n", backbones.create, "wide_resnet", classes=10, depth=41)
    refused(InputError, "colour", backbones.create, "small_cnn", classes=10, colour="red")
    refused(UnknownNameError, "did you mean 'resnet18'", backbones.create, "resnet_18", classes=10)


def test_dropout_acts_in_training_alone() -> None:
    net = backbones.create("wide_resnet", classes=3, depth=10, widen=1, drop=0.5)
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_a_layer_without_known_first_weights_is_refused() -> None:
    net = backbones.create("small_cnn", classes=3)
    net.extra = nn.LayerNorm(3)
    refused(CapabilityError, "extra.weight", net.initialise, torch.Generator())
