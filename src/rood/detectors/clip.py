"""Zero-shot detection with an image-text model: OOD words against ID words."""

from typing import Literal

from rood.detectors._words import OverWords
from rood.detectors.base import ScoreFunction
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.shapes import Scores


class CLIP(OverWords):
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
        super().__init__(model, inside=inside)
        if combine not in ("max_difference", "softmax_sum"):
            raise InputError(f"expected max_difference or softmax_sum, got {combine!r}")
        self.combine = combine

    def score_outputs(self, out: Outputs) -> Scores:
        words_in, words_out = self.sides(out.logits)
        if self.combine == "softmax_sum":
            return words_out.logsumexp(dim=1) - words_in.logsumexp(dim=1)
        return words_out.amax(dim=1) - words_in.amax(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The log-odds of all words: the maxima have the gradient of one word of each kind."""
        if self.combine == "softmax_sum":
            return ()
        return (CLIP(self.model, inside=self.inside, combine="softmax_sum").score_images,)
