"""Networks that somebody else trained, as their authors wrote them: weights are not in rood.

    rood audit --model examples.published:odin_densenet_cifar10 --weights FILE.pt \
        --inside npz:cifar10_test.npz --outside svhn=npz:svhn_test5k.npz

Each function returns a plain PyTorch module in rood.wrap. The authors of ODIN
(https://github.com/facebookresearch/odin) and OECC (arXiv:1906.03509) publish the weights.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

import rood
from rood.models.model import Model

MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of pixels in 0..255


class Layer(nn.Module):
    """A bottleneck of DenseNet-BC."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(before), nn.Conv2d(before, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.conv1(relu(self.bn1(x)))
        return torch.cat([x, self.conv2(relu(self.bn2(narrow)))], 1)


class Block(nn.Module):
    """Layers, each of which sees what all before it made."""

    def __init__(self, layers: int, before: int, growth: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(*(Layer(before + i * growth, growth) for i in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Transition(nn.Module):
    """Half the channels, and half the size."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(before), nn.Conv2d(before, before // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return avg_pool2d(self.conv1(relu(self.bn1(x))), 2)


class DenseNet(nn.Module):
    """DenseNet-BC-100-12 with the names of https://github.com/andreasveit/densenet-pytorch."""

    def __init__(self, classes: int, layers: int = 16, growth: int = 12) -> None:
        super().__init__()
        c = 2 * growth
        self.conv1 = nn.Conv2d(3, c, 3, padding=1, bias=False)
        self.block1 = Block(layers, c, growth)
        c += layers * growth
        self.trans1, c = Transition(c), c // 2
        self.block2 = Block(layers, c, growth)
        c += layers * growth
        self.trans2, c = Transition(c), c // 2
        self.block3 = Block(layers, c, growth)
        c += layers * growth
        self.bn1, self.fc = nn.BatchNorm2d(c), nn.Linear(c, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.trans1(self.block1(self.conv1(x)))
        x = self.block3(self.trans2(self.block2(x)))
        return self.fc(relu(self.bn1(x)).mean((2, 3)))


def _densenet(classes: int) -> Model:
    mean, std = ([v / 255 for v in values] for values in (MEAN, STD))
    return rood.wrap(DenseNet(classes), mean=mean, std=std)


def odin_densenet_cifar10() -> Model:
    """Liang, Li and Srikant, *Enhancing the Reliability of OOD Image Detection*, ICLR 2018."""
    return _densenet(10)


def odin_densenet_cifar100() -> Model:
    """The same for CIFAR-100."""
    return _densenet(100)


def oecc_densenet_cifar10() -> Model:
    """Papadopoulos et al., *Outlier Exposure with Confidence Control*, arXiv:1906.03509."""
    return _densenet(10)


def oecc_densenet_cifar100() -> Model:
    """The same for CIFAR-100."""
    return _densenet(100)
