"""Which predicted classes no attack can change."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rood.certify.bounding import Certifier, Method
from rood.detectors.base import OutputBox, OutputDetector
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.shapes import Images, Labels, Scores
from rood.threat import Threat


def certain(
    model: Model, x: Images, labels: Labels, threat: Threat, method: Method = "crown"
) -> Bool[Tensor, " b"]:
    """Whether every allowed image around each of x is given the class in `labels`.

    An image without a label (-1) is not.
    """
    found = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for wanted in labels.unique().tolist():
        if wanted >= 0:
            mine = (labels == wanted).to(x.device)
            bound = Certifier(Behind(model, wanted), threat, method)
            found[mine] = bound(x[mine]).high < 0
    return found


class Behind(OutputDetector):
    """s(x) = max_{j != y} z_j - z_y: below 0 where the network gives class y."""

    bounded = ("logits", "forms")

    def __init__(self, model: Model, wanted: int) -> None:
        super().__init__(model)
        self.wanted = wanted

    def score_outputs(self, out: Outputs) -> Scores:
        return (self._others(out.logits) - out.logits[:, [self.wanted]]).amax(dim=1)

    def forms(self) -> Float[Tensor, "m d"]:
        weight = self.model.head.weight.double()
        return self._others(weight.T).T - weight[self.wanted]

    def bounds_from(self, out: OutputBox) -> Box:
        low, high = (v[:, [self.wanted]] for v in out.logits)
        gaps = Box(self._others(out.logits.low) - high, self._others(out.logits.high) - low)
        if out.forms is not None:
            gaps = gaps.within(out.forms.moved(self._bias()))
        return Box(*(v.amax(dim=1) for v in gaps))

    def _bias(self) -> Tensor | float:
        bias = self.model.head.bias
        return 0.0 if bias is None else self._others(bias[None].double())[0] - bias[self.wanted]

    def _others(self, values: Tensor) -> Tensor:
        return torch.cat([values[:, : self.wanted], values[:, self.wanted + 1 :]], dim=1)
