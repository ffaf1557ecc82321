"""Classes, and a scalar ID/OOD head trained on what certificates say of it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, softplus

from rood.certify import backward
from rood.certify.forward import intervals
from rood.certify.graph import trace
from rood.certify.region import Region
from rood.errors import expect
from rood.models.backbones import create
from rood.models.model import Model
from rood.models.scored import head_of
from rood.models.wrap import wrap
from rood.numerics.box import Box
from rood.shapes import Images, Scores, wide
from rood.threat import Linf
from rood.training.objectives.base import Batch, Loss, Objective
from rood.training.objectives.robust import check_weight, evaluating


@dataclass(frozen=True, kw_only=True)
class CertifiedHead(Objective):
    r"""L = classes E[a(x)] + E[l(u(x))] + weight E[l(-v(o))] + expose E[c(o)], l = softplus.

    v <= s <= u bound the scalar head s in the L-infinity ball of radius eps. a is -log p_y of the
    worst logits, z_y low, the others high; c = lse(z high) - mean(z low) is at least the
    cross-entropy to the uniform. Bounds are intervals, Gowal et al., arXiv:1810.12715; those of s
    mixed with CROWN-IBP, Zhang et al., arXiv:1906.06316. During the share `ramp` of the training
    eps grows from 0, the share of CROWN-IBP falls from `crown` to 0, and that of the same loss
    without a threat from 1 to `kappa`. Outliers as in GOOD, Bitterwolf et al., arXiv:2007.08473;
    bounds of s for images too are ours, so that both sides can be certified; `sides="outside"`
    leaves them out. Without the classes it is the discriminator of ProoD, Meinke et al.,
    arXiv:2106.04260, for use beside any classifier. Needs a network with a scalar head (`scored` in
    its architecture); few layers keep the bounds tight.
    """

    needs_outliers: ClassVar[bool] = True

    eps: float = 0.1  # in pixel units
    sides: Literal["both", "outside"] = "both"  # that the bounds are for: outside, outliers alone
    classes: float = 1.0  # weight of the labels; 0: the network is to tell ID from OOD alone
    weight: float = 1.0  # of the outliers, in the loss of the head
    expose: float = 0.5  # of the outliers, in the loss of the classes
    ramp: float = 0.5  # share of the training in which eps grows from 0
    kappa: float = 0.0  # share of the loss without a threat, once eps has grown
    crown: float = 1.0  # share of CROWN-IBP in the bounds at the start; 0: intervals alone

    def __post_init__(self) -> None:
        Linf(self.eps)  # validates eps
        for weight in (self.classes, self.weight, self.expose):
            check_weight(weight)
        expect(self.sides in ("both", "outside"), "sides 'both' or 'outside'", repr(self.sides))
        for name in ("ramp", "kappa", "crown"):
            value = getattr(self, name)
            expect(0 <= value <= 1, f"a share 0 <= {name} <= 1", value)

    @classmethod
    def example(cls) -> "CertifiedHead":
        """For the checks: an eps small enough for weights drawn at random."""
        return cls(eps=1e-4)

    @staticmethod
    def example_model(model: Model) -> Model:
        """A network of layers that certificates cover, for the contract checks."""
        channels = model.mean.shape[1]
        return wrap(create("plain_cnn", classes=model.classes, channels=channels, scored=True))

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        n, both = len(batch.x), torch.cat([batch.x, batch.outliers])
        out = model(both)
        z, s = out.logits.float(), head_of(out).float()
        far = (torch.arange(len(both), device=both.device) >= n).to(both)
        sign = 2 * far - 1  # what must be large is -s of images, s of outliers
        grown = self._grown(batch.done)
        reach = self.eps * grown * (far if self.sides == "outside" else torch.ones_like(far))
        crown = self.crown * (1 - grown) if self.crown else 0.0
        box, worst = bounded(model, both, sign, reach, crown)
        clean = 1 - (1 - self.kappa) * grown
        losses = [self._total(Box(z, z), sign * s, batch.y), self._total(box, worst, batch.y)]
        return clean * losses[0] + (1 - clean) * losses[1]

    def _grown(self, done: float | Tensor) -> float | Tensor:
        """The share of eps that is reached."""
        share = done / self.ramp if self.ramp else 1.0
        return share.clamp(max=1) if isinstance(share, Tensor) else min(1.0, share)

    def _total(self, z: Box, margin: Scores, y: Int[Tensor, " labelled"]) -> Loss:
        """The loss of logits between bounds, and of lower bounds of the head's margins."""
        n, own = len(y), y[:, None] == torch.arange(z.low.shape[1], device=y.device)
        classes = cross_entropy(torch.where(own, z.low[:n], z.high[:n]), y)
        uniform = z.high[n:].logsumexp(dim=1) - z.low[n:].mean(dim=1)
        head = softplus(-margin[:n]).mean() + self.weight * softplus(-margin[n:]).mean()
        return self.classes * classes + self.expose * uniform.mean() + head


def bounded(
    model: Model, x: Images, sign: Scores, eps: float | Tensor, crown: float | Tensor
) -> tuple[Box, Scores]:
    """Bounds of the logits around each image, and of sign times the scalar head from below.

    Both with gradients. eps: one, or one for each image. crown: the share of CROWN-IBP in the
    latter, else interval bounds.
    """
    with torch.autocast(x.device.type, enabled=False):
        with evaluating(model):
            graph = trace(model, tuple(x.shape[1:]))
        assert graph.head is not None
        found = intervals(graph, _region(x.to(model.mean.dtype), eps))
        box = found.boxes[graph.head].reshaped(sign)
        bound = torch.where(sign > 0, box.low, -box.high)
        if isinstance(crown, Tensor) or crown > 0:
            a = sign.to(model.mean.dtype).view(-1, *graph.nodes[graph.head].shape)
            owner = torch.arange(len(x), device=x.device)
            line = backward.least(found, graph.head, a, owner)
            bound = (1 - crown) * bound + crown * line
        return found.boxes[graph.logits], bound


def _region(x: Images, eps: float | Tensor) -> Region:
    """Without the rounding that `Region.around` covers: training needs no proof."""
    reach = wide(eps) if isinstance(eps, Tensor) and eps.ndim else eps
    return Region(x, Box((x - reach).clamp(min=0), (x + reach).clamp(max=1)), None)
