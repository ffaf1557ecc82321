"""Entropy of the mean softmax of several networks."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from rood.detectors.base import Detector
from rood.errors import InputError
from rood.models.model import Model
from rood.numerics.softmax import entropy_log_odds
from rood.shapes import Images, Scores


class DeepEnsemble(Detector):
    r"""s(x) = log H(p) - log(log k - H(p)), p = (1/m) sum_i softmax(z_i(x)) over m networks.

    Lakshminarayanan et al., *Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles*, NeurIPS 2017, arXiv:1612.01474. log p is the log-sum-exp of the networks' log
    softmaxes; H as log-odds as in `Entropy`.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise InputError("expected at least one network in an ensemble, got none")
        super().__init__(models[0])
        if len({m.classes for m in models}) > 1:
            raise InputError("expected networks with the same classes in an ensemble")
        self.models = nn.ModuleList(models)

    @classmethod
    def example(cls, model: Model) -> "DeepEnsemble":
        """One network twice, for the contract checks."""
        return cls([model, model])

    def score_images(self, x: Images) -> Scores:
        log_p = torch.stack([m(x).logits.log_softmax(dim=1) for m in self.models])
        return entropy_log_odds(log_p.logsumexp(dim=0) - math.log(len(self.models)))

    def cost(self) -> tuple[int, int]:
        return len(self.models), 0
