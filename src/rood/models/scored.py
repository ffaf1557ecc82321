"""A scalar head beside the classes, for any network."""

import copy

import torch
from torch import Tensor, nn

from rood.errors import CapabilityError
from rood.models.backbones.base import Backbone
from rood.models.model import Model, Outputs
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.shapes import Images, Scores


class Scored(nn.Module):
    """A classifier, and a linear layer from its features to one number."""

    def __init__(self, net: nn.Module, score: nn.Linear) -> None:
        super().__init__()
        self.net = net
        self.score = score

    def forward(self, x: Images) -> Tensor:
        return self.net(x)


def scored(model: Model, *, seed: int = 0) -> Model:
    """A copy of the model with an untrained scalar head."""
    net, like = copy.deepcopy(model.net), model.head.weight
    score = nn.Linear(model.head.in_features, 1, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        score.weight.normal_(generator=generator(seed, "scalar head"))
        score.bias.zero_()
    head = next(n for n, m in model.net.named_modules() if m is model.head)
    if isinstance(net, Backbone):
        net.add_score(score.to(like))
    else:
        net, head = Scored(net, score.to(like)), f"net.{head}"
    normal = {"mean": model.mean.flatten().tolist(), "std": model.std.flatten().tolist()}
    return wrap(net, head=head, **normal)  # named, as the scalar head is the last layer


def head_of(out: Outputs) -> Scores:
    """What the scalar head said; high for OOD."""
    if out.head is None:
        raise no_head()
    return out.head


def no_head() -> CapabilityError:
    """The error for a network without a scalar head."""
    return CapabilityError(
        "expected a network with a scalar head, got one without: train a backbone with "
        "scored=true by the objective joint or certified_head"
    )
