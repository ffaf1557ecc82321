"""The mean score of a scalar head for an image and its mirror image."""

import torch

from rood.detectors.head import Head
from rood.detectors.mirrored import Mirrored
from rood.models.model import Model
from rood.models.scored import scored


class MirroredHead(Mirrored):
    r"""s(x) = (h(x) + h(mirror(x))) / 2, h a scalar head that was trained.

    `Mirrored` over `Head`, which the objectives `joint` and `certified_head` train. Averaging over
    both views is from Simonyan & Zisserman, arXiv:1409.1556.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(Head(model))

    @classmethod
    def example(cls, model: Model) -> "MirroredHead":
        """On a copy of the network whose head asks for strong features, for the contract checks."""
        model = scored(model)
        assert model.scalar_head is not None
        with torch.no_grad():
            model.scalar_head.weight.fill_(-1.0)
        return cls(model)
