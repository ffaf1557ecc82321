"""What the detectors of image-text models share: words for ID and for OOD, cosines with both."""

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rood.detectors.base import OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.models.wrap import wrap

D = TypeVar("D", bound="OverWords")
TINY = 1e-12  # of a length: its square is not 0 in float32


class OverWords(OutputDetector):
    """A detector on a model whose first `inside` logits are of ID words, the others of OOD words.

    Such a model is `rood.models.sources.clip.zero_shot(...)`.
    """

    def __init__(self, model: Model, *, inside: int) -> None:
        super().__init__(model)
        if not 0 < inside < model.classes:
            raise InputError(
                f"expected 1 to {model.classes - 1} ID words of {model.classes} words, got {inside}"
            )
        self.inside = inside

    @classmethod
    def example(cls: type[D], model: Model) -> D:
        """The model's classes as ID words and one OOD word with constant logit."""
        head = nn.Linear(model.classes, model.classes + 1)
        with torch.no_grad():
            head.weight.copy_(torch.eye(model.classes + 1, model.classes))
            head.bias.zero_()
        net = nn.Sequential(_Logits(model), head.to(model.mean))
        return cls(wrap(net, head="1"), inside=model.classes)

    def sides(self, z: Float[Tensor, "b k"]) -> tuple[Tensor, Tensor]:
        """The columns of the ID words and those of the OOD words."""
        return z[:, : self.inside], z[:, self.inside :]


def cosines(out: Outputs, head: nn.Linear) -> Float[Tensor, "b k"]:
    """cos(f, w_j) of the features and each row of the head, from the logits; 0 where w_j is 0."""
    z = out.logits if head.bias is None else out.logits - head.bias
    lengths = out.features.norm(dim=1, keepdim=True) * head.weight.norm(dim=1)
    return z / lengths.clamp_min(TINY)


class _Logits(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits
