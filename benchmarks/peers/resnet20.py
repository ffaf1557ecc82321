"""The ResNet-20 of CIFAR-10 whose public weights `ROOD_DATA` may hold: pixels to logits."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions beside a shortcut without weights."""

    def __init__(self, planes_in: int, planes: int) -> None:
        super().__init__()
        self.stride, self.more = (1, 0) if planes == planes_in else (2, planes - planes_in)
        self.conv1 = nn.Conv2d(planes_in, planes, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return relu(out + pad(shortcut, (0, 0, 0, 0, self.more // 2, self.more // 2)))


class ResNet20(nn.Module):
    """Three stages of three blocks, 16 to 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16), Block(16, 16), Block(16, 16))
        self.layer2 = nn.Sequential(Block(16, 32), Block(32, 32), Block(32, 32))
        self.layer3 = nn.Sequential(Block(32, 64), Block(64, 64), Block(64, 64))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))


class OnPixels(nn.Module):
    """The network with its normalisation in front, as any library wants it."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(MEAN).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x - self.mean) / self.std)


def resnet20(weights: Path) -> OnPixels:
    """Trained, in eval mode, its parameters frozen: nobody pays for their gradients."""
    net = ResNet20()
    state = torch.load(weights, weights_only=True)
    missing, unexpected = net.load_state_dict(state, strict=False)
    if unexpected or any(not name.endswith("num_batches_tracked") for name in missing):
        raise SystemExit(f"expected the weights of a ResNet-20 in {weights.name}")
    return OnPixels(net).eval().requires_grad_(False)
