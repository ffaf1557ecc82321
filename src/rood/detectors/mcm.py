"""Maximum concept matching: how much nearer the nearest word is than the others."""

import math

from rood.detectors._words import cosines
from rood.detectors.base import OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.softmax import margin
from rood.shapes import Scores


class MCM(OutputDetector):
    r"""s(x) = T lme_{j != y}(c_j / T) - c_y, c_j = cos(image, text_j) of ID words, y = argmax c.

    lme is the logarithm of the mean of exponentials. Ming et al., *Delving into Out-of-Distribution
    Detection with Vision-Language Representations*, NeurIPS 2022, arXiv:2211.13445. The paper
    scores max softmax(c / T) = 1 / (1 + (k - 1) e^{s / T}), the same ranking for k words, which is
    nearly the same number for all images at its T of 1. Sign: the paper's confidence, negated. The
    model is `rood.models.sources.clip.zero_shot(...)`; of any other classifier c are the cosines of
    the features and the rows of the head.
    """

    def __init__(
        self,
        model: Model,
        *,
        inside: int | None = None,  # how many of the words, the first ones, are ID; None: all
        temperature: float = 1.0,
    ) -> None:
        super().__init__(model)
        if inside is not None and not 2 <= inside <= model.classes:
            raise InputError(
                f"expected 2 to {model.classes} ID words of {model.classes} words, got {inside}"
            )
        if not temperature > 0:
            raise InputError(f"expected a temperature above 0, got {temperature}")
        self.inside = inside
        self.temperature = temperature

    def score_outputs(self, out: Outputs) -> Scores:
        c = cosines(out, self.model.head)[:, : self.inside]
        return margin(c, self.temperature) - math.log(c.shape[1] - 1)
