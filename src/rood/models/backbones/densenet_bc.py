"""DenseNet-BC for 32x32 images."""

import math
from typing import Literal

from torch import Generator, nn

from rood.errors import InputError, expect
from rood.models.backbones._densenet import DenseNet


class DenseNetBC(DenseNet):
    """DenseNet-BC-d-k: three dense blocks of (d - 4) / 6 layers that add k channels each.

    Huang et al., *Densely Connected Convolutional Networks*, CVPR 2017, arXiv:1608.06993.
    `init="aloe"` draws every convolution from N(0, 2/16) as the code of Chen et al.,
    arXiv:2003.09711, does, whatever its size; He's rule is the default.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        depth: int = 100,
        growth: int = 12,
        init: Literal["he", "aloe"] = "he",
    ) -> None:
        if depth < 10 or (depth - 4) % 6 or growth < 1:
            raise InputError(f"expected depth = 6 n + 4 and growth >= 1, got {depth} and {growth}")
        expect(init in ("he", "aloe"), "init 'he' or 'aloe'", repr(init))
        super().__init__(
            nn.Conv2d(channels, 2 * growth, 3, padding=1, bias=False),
            2 * growth,
            [(depth - 4) // 6] * 3,
            classes=classes,
            channels=channels,
            growth=growth,
        )
        self.init = init

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        if self.init == "aloe" and isinstance(layer, nn.Conv2d):
            layer.weight.normal_(0, math.sqrt(2 / 16), generator=generator)
            return True
        return super().start(layer, generator)

    def our_name(self, name: str) -> str:
        first, _, rest = name.partition(".")
        if first in _OUTER:
            return f"{_OUTER[first]}.{rest}"
        inner = rest.replace("layer.", "").replace("bn", "norm")
        return f"body.{first.replace('trans', 'transition')}.{inner}"


_OUTER = {"conv1": "stem", "bn1": "norm", "fc": "head"}
