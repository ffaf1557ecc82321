"""Zero-shot detection with an image-text model: OOD words against ID words."""

from typing import Literal

import torch
from torch import nn

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.models.wrap import wrap
from rood.shapes import Scores


class CLIP(OutputDetector):
    r"""s(x) = max_{out} z_j - max_{in} z_j, z_j = scale cos(image, text_j) over ID and OOD words.

    `combine="softmax_sum"` uses the probability of all OOD words instead, as its log-odds,
    lse_out z - lse_in z. Fort, *Adversarial vulnerability of powerful near out-of-distribution
    detection*, 2022, arXiv:2201.07012. The model is
    `rood.models.sources.clip.zero_shot(...)`, whose first `inside` logits are the ID words'.
    """

    gradient = "almost_everywhere"

    def __init__(
        self,
        model: Model,
        *,
        inside: int,  # how many of the words, the first ones, name in-distribution classes
        combine: Literal["max_difference", "softmax_sum"] = "max_difference",
    ) -> None:
        super().__init__(model)
        if not 0 < inside < model.classes:
            raise InputError(
                f"expected 1 to {model.classes - 1} ID words of {model.classes} words, got {inside}"
            )
        if combine not in ("max_difference", "softmax_sum"):
            raise InputError(f"expected max_difference or softmax_sum, got {combine!r}")
        self.inside = inside
        self.combine = combine

    @classmethod
    def example(cls, model: Model) -> "CLIP":
        """The model's classes as ID words and one OOD word with constant logit."""
        head = nn.Linear(model.classes, model.classes + 1)
        with torch.no_grad():
            head.weight.copy_(torch.eye(model.classes + 1, model.classes))
            head.bias.zero_()
        net = nn.Sequential(_Logits(model), head.to(model.mean))
        return cls(wrap(net, head="1"), inside=model.classes)

    def score_outputs(self, out: Outputs) -> Scores:
        words_in, words_out = out.logits[:, : self.inside], out.logits[:, self.inside :]
        if self.combine == "softmax_sum":
            return words_out.logsumexp(dim=1) - words_in.logsumexp(dim=1)
        return words_out.amax(dim=1) - words_in.amax(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The log-odds of all words: the maxima have the gradient of one word of each kind."""
        if self.combine == "softmax_sum":
            return ()
        return (CLIP(self.model, inside=self.inside, combine="softmax_sum").score_images,)


class _Logits(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).logits
