"""Any architecture plus the Gaussian mixtures of CCU."""

from typing import Any

from torch import Generator, nn

from rood.models.backbones import registry
from rood.models.backbones.base import Backbone
from rood.models.generative.mixtures import Kept
from rood.shapes import Images, Logits


class Certified(Backbone):
    """The logits of another architecture; the objective `ccu` fits `mixtures` along with it.

    Meinke and Hein, *Towards neural networks that provably know when they don't know*, ICLR 2020,
    arXiv:1909.12180. The mixtures do not affect the logits; the detector `ccu` reads them.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        size: int = 32,  # pixels of a side
        backbone: str = "small_cnn",
        architecture: dict[str, Any] | None = None,
        axes: int = 100,
        centroids: int = 100,
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        inner = registry.get(backbone)(classes=classes, channels=channels, **(architecture or {}))
        self.head = inner.head  # registered before `inner`, so that it has this name
        self.inner = inner
        pixels = channels * size**2
        self.mixtures = Kept(pixels=pixels, axes=min(axes, pixels), centroids=centroids)

    def forward(self, x: Images) -> Logits:
        return self.inner(x)

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        if isinstance(layer, Kept):
            for buffer in layer.buffers():
                buffer.zero_()
            return True
        return self.inner.start(layer, generator)
