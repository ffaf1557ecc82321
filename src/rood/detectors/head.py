"""The scalar head of a network that was trained to tell ID from OOD."""

import torch

from rood.detectors.base import OutputBox, OutputDetector
from rood.models.model import Model, Outputs
from rood.models.scored import head_of, no_head, scored
from rood.numerics.box import Box
from rood.shapes import Scores


class Head(OutputDetector):
    r"""s(x) = w f(x) + b, with f the features and (w, b) learnt by `joint` or `certified_head`.

    For networks with such a head alone; nothing is fitted. A detector of its own beside the classes
    is ATD's, Azizmalayeri et al., *Your Out-of-Distribution Detection Method is Not Robust!*,
    NeurIPS 2022, arXiv:2209.15246; here it is one layer on the features of the classifier.
    """

    bounded = ("head",)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        if model.scalar_head is None:
            raise no_head()

    @classmethod
    def example(cls, model: Model) -> "Head":
        """On a copy of the network whose head prefers colours to grey, for the contract checks."""
        model = scored(model)
        assert model.scalar_head is not None
        size = 28
        colours = torch.eye(model.mean.shape[1]).to(model.mean)
        flat = torch.cat([colours.mean(dim=0, keepdim=True) / 2, colours])[:, :, None, None]
        with torch.no_grad():
            grey, *others = model(flat.expand(-1, -1, size, size)).features
            model.scalar_head.weight.copy_(grey - torch.stack(others).mean(dim=0))
        return cls(model)

    def score_outputs(self, out: Outputs) -> Scores:
        return head_of(out)

    def bounds_from(self, out: OutputBox) -> Box:
        assert out.head is not None
        return out.head
