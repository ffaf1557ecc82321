"""Negative labels: many OOD words, far from all ID words, against the ID words."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rood.detectors._words import OverWords, cosines
from rood.detectors.base import ScoreFunction
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.seeds import generator
from rood.shapes import Scores


class NegLabel(OverWords):
    r"""s(x) = log(p / (1 - p)), p = mean_g sum_{j in g} e_j / (sum_in e_i + sum_{j in g} e_j).

    e_j = exp(cos(image, text_j) / T); in are the ID words, g runs over random groups of the OOD
    words. Jiang et al., *Negative Label Guided OOD Detection with Pretrained Vision-Language
    Models*, ICLR 2024, arXiv:2403.20078. The paper scores 1 - p, which saturates; the log-odds rank
    alike. Where there are fewer OOD words than `groups`, each is a group; sizes of groups differ by
    one at most (the authors' code drops what is left over). The model is
    `rood.models.sources.clip.zero_shot(...)`; `rood.models.sources.negative_words` finds OOD words.
    """

    order: Tensor  # of the OOD words, whose neighbours form the groups

    def __init__(
        self,
        model: Model,
        *,
        inside: int,  # how many of the words, the first ones, name in-distribution classes
        temperature: float = 0.01,
        groups: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(model, inside=inside)
        if not (temperature > 0 and groups >= 1):
            raise InputError(
                f"expected a temperature above 0 and groups >= 1, got {temperature} and {groups}"
            )
        self.temperature = temperature
        self.groups = groups
        self.seed = seed
        outside = model.classes - inside
        order = torch.randperm(outside, generator=generator(seed, "negative labels"))
        self.register_buffer("order", order.to(model.mean.device), persistent=False)

    def score_outputs(self, out: Outputs) -> Scores:
        words_in, words_out = self.sides(cosines(out, self.model.head) / self.temperature)
        own = words_in.logsumexp(dim=1)
        parts = words_out[:, self.order].tensor_split(min(self.groups, words_out.shape[1]), dim=1)
        odds = torch.stack([part.logsumexp(dim=1) - own for part in parts], dim=1)  # (b, groups)
        # softplus(-odds) = -log sigmoid(odds), which ONNX would take of a rounded sigmoid
        return (-softplus(-odds)).logsumexp(dim=1) - (-softplus(odds)).logsumexp(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """All OOD words as one group: a mean of groups that are certain, of both kinds, is flat."""
        if self.groups == 1:
            return ()
        one = NegLabel(self.model, inside=self.inside, temperature=self.temperature, groups=1)
        return (one.score_images,)
