"""Probability of an unknown class by extreme-value theory."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Sample
from rood.shapes import Labels, Logits, Scores

NEWTON = 50  # steps for the shape of a Weibull distribution; it has converged long before


class OpenMax(OutputDetector):
    r"""s(x) = u - lse_c(z_c (1 - a_c)), u = sum_c a_c z_c: the log-odds of the unknown class.

    a_c = (top - rank_c) / top F_c(||z - m_c||) for the `top` largest logits (ranks from 0), else 0.
    m_c is the mean logit vector of the correctly classified training images of class c, F_c a
    Weibull distribution fitted to their `tail` largest distances from it. Bendale & Boult, *Towards
    Open Set Deep Networks*, CVPR 2016, arXiv:1511.06233. The log-odds do not saturate; means and
    tails are over at most `sample` training images.
    """

    gradient = "almost_everywhere"
    needs_labels = True

    means_: Float[Tensor, "k k"]
    start_: Float[Tensor, " k"]  # where the tail begins
    shape_: Float[Tensor, " k"]
    scale_: Float[Tensor, " k"]

    def __init__(
        self, model: Model, *, top: int = 3, tail: int = 20, sample: int = 100_000
    ) -> None:
        super().__init__(model)
        if not (top >= 1 and tail >= 2):
            raise InputError(f"expected top >= 1 and tail >= 2, got {top} and {tail}")
        self.top = top
        self.tail = tail
        self.sample = sample

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        z = out.logits.double()
        self._rows.see(torch.cat([z, labels.to(z)[:, None]], dim=1), out.keys)

    def finish(self) -> None:
        rows = self._rows.rows()
        del self._rows
        z, y = rows[:, :-1], rows[:, -1].long()
        fitted = [self._class(z[y == c], c) for c in range(self.model.classes)]
        means, *rest = zip(*fitted, strict=True)
        self.means_ = torch.stack(means)
        self.start_, self.shape_, self.scale_ = (torch.stack(values) for values in rest)

    def _class(self, z: Logits, c: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean and tail of one class."""
        right = z[z.argmax(dim=1) == c]
        z = right if len(right) >= 2 else z
        if len(z) < 2:
            raise InputError(
                f"expected at least 2 training images of every class, got {len(z)} of class {c}: "
                "give images of it"
            )
        mean = z.mean(dim=0)
        largest = (z - mean).norm(dim=1).sort().values[-self.tail :]
        return mean, largest[0], *weibull(largest - largest[0] + 1)

    def unknown(self, z: Logits) -> Logits:
        """a_c."""
        apart = (z[:, None] - self.means_.double()).norm(dim=2)  # (b, k)
        beyond = (apart - self.start_.double() + 1).clamp_min(torch.finfo(z.dtype).tiny)
        cdf = -torch.expm1(-((beyond / self.scale_.double()) ** self.shape_.double()))
        top = min(self.top, z.shape[1])
        places = z.detach().topk(top, dim=1).indices
        weight = (top - torch.arange(top, device=z.device, dtype=z.dtype)) / top
        return cdf * torch.zeros_like(z).scatter(1, places, weight.expand_as(places))

    def score_outputs(self, out: Outputs) -> Scores:
        z = out.logits.double()
        a = self.unknown(z)
        return (a * z).sum(dim=1) - (z * (1 - a)).logsumexp(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (Energy(self.model).score_images,)


def weibull(x: Float[Tensor, " n"]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Shape and scale of a Weibull distribution by maximum likelihood, for x >= 1.

    The shape k solves sum(x^k log x) / sum(x^k) - 1/k = mean(log x), whose left side rises in k:
    bisection in log k.
    """
    logs = x.log()
    low, high = torch.full_like(logs[0], -10.0), torch.full_like(logs[0], 15.0)
    for _ in range(2 * NEWTON):
        k = ((low + high) / 2).exp()
        weights = (k * logs).softmax(dim=0)
        rises = (weights * logs).sum() - 1 / k < logs.mean()
        low, high = (
            torch.where(rises, (low + high) / 2, low),
            torch.where(rises, high, (low + high) / 2),
        )
    k = ((low + high) / 2).exp()
    return k, ((k * logs).logsumexp(dim=0) - torch.log(torch.tensor(float(len(x))))).div(k).exp()
