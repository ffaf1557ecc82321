"""DCGAN: a generator of images and its discriminator."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from rood.shapes import Images, Scores

NOISE = 100  # dimension of the latent noise
SMALLEST = 4  # side of the first map, in pixels


class Painter(nn.Module):
    """Noise to images in [0, 1]: a 4x4 map, upsampled by 2 until it covers the image, cropped.

    Radford et al., *Unsupervised Representation Learning with Deep Convolutional Generative
    Adversarial Networks*, ICLR 2016, arXiv:1511.06434, in the size of Lee et al., *Training
    Confidence-Calibrated Classifiers*, ICLR 2018, arXiv:1711.09325, for 32x32 images.
    """

    def __init__(self, shape: tuple[int, int, int], width: int = 128) -> None:
        super().__init__()
        self.shape = shape
        n = doublings(shape)
        sizes = [NOISE, *(width * 2**i for i in reversed(range(n))), shape[0]]
        layers: list[nn.Module] = []
        for i in range(n + 1):
            stride, padding = (2, 1) if i else (1, 0)
            layers.append(
                nn.ConvTranspose2d(sizes[i], sizes[i + 1], 4, stride, padding, bias=False)
            )
            layers += [nn.BatchNorm2d(sizes[i + 1]), nn.ReLU()] if i < n else [nn.Sigmoid()]
        self.layers = nn.Sequential(*layers)

    def forward(self, noise: Float[Tensor, "b z"]) -> Images:
        _, h, w = self.shape
        painted = self.layers(noise[:, :, None, None])
        down, right = (painted.shape[2] - h) // 2, (painted.shape[3] - w) // 2
        return painted[:, :, down : down + h, right : right + w]


class Critic(nn.Module):
    """Images to the logit of being real; the generator mirrored."""

    def __init__(self, shape: tuple[int, int, int], width: int = 128) -> None:
        super().__init__()
        n = doublings(shape)
        self.side = SMALLEST * 2**n
        sizes = [shape[0], *(width * 2**i for i in range(n)), 1]
        layers: list[nn.Module] = []
        for i in range(n + 1):
            stride, padding = (2, 1) if i < n else (1, 0)
            layers.append(nn.Conv2d(sizes[i], sizes[i + 1], 4, stride, padding, bias=False))
            if 0 < i < n:
                layers.append(nn.BatchNorm2d(sizes[i + 1]))
            layers += [nn.LeakyReLU(0.2)] if i < n else []
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Images) -> Scores:
        down, right = self.side - x.shape[2], self.side - x.shape[3]
        edges = (right // 2, right - right // 2, down // 2, down - down // 2)
        return self.layers(pad(x, edges)).flatten()


def doublings(shape: tuple[int, int, int]) -> int:
    """How often a 4x4 map is upsampled by 2 to cover an image."""
    return max(1, math.ceil(math.log2(max(shape[1:]) / SMALLEST)))


@torch.no_grad()
def initialise(net: nn.Module, generator: Generator) -> None:
    """Convolutions from N(0, 0.02), as in the paper; batch norm from N(1, 0.02)."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            layer.weight.copy_(0.02 * torch.randn(layer.weight.shape, generator=generator))
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()
            layer.weight.copy_(1 + 0.02 * torch.randn(layer.weight.shape, generator=generator))
