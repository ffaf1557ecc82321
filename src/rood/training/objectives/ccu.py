"""A classifier with a density of the images and one of the outliers."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from rood.errors import expect
from rood.models.generative.mixtures import WIDER, Kept, Mixtures, fitted
from rood.models.model import Model
from rood.shapes import Logits, Scores
from rood.training.objectives.base import Batch, Loss, Objective

LEARNT = ("inside", "outside", "log_var_in", "log_var_out")
LARGEST = 0.1  # change of a log variance per step


@dataclass(frozen=True, kw_only=True)
class CCU(Objective):
    r"""L = (E[-log q_y(x)] + E[-mean_y log q_y(o)]) / 2, q = a p + (1 - a) / k.

    a = g_in / (g_in + weight g_out), where g_in and g_out are mixtures of Gaussians over the images
    and over the outliers o. They are initialised by expectation-maximisation and follow, by plain
    gradient steps of `rate`, L - (E log(g_in + weight g_out)(x) + E log(...)(o)) / 2; an outlier's
    variance stays at least 4 times an image's. Meinke and Hein, *Towards neural networks that
    provably know when they don't know*, ICLR 2020, arXiv:1909.12180. To keep the mixtures with the
    network, train the backbone `certified`.
    """

    needs_outliers: ClassVar[bool] = True
    has_memory: ClassVar[bool] = True

    weight: float = 1.0
    rate: float = 1e-5
    centroids: int = 100  # per mixture; this and `axes` where the network does not set them
    axes: int = 100  # principal axes of the metric, each with a scale

    def __post_init__(self) -> None:
        counts = self.centroids, self.axes
        holds = self.weight > 0 and self.rate >= 0 and min(counts) >= 1
        what = "weight > 0, rate >= 0, centroids >= 1 and axes >= 1"
        expect(holds, what, self.weight, self.rate, *counts)

    @classmethod
    def example(cls) -> "CCU":
        """For the checks: few centroids for few images."""
        return cls(centroids=3, axes=8)

    def begin(self, model: Model, some: Batch, generator: Generator) -> Kept:
        kept = getattr(model.net, "mixtures", None)
        if not isinstance(kept, Kept):
            pixels = some.x[0].numel()
            axes = min(self.axes, pixels)
            kept = Kept(pixels=pixels, axes=axes, centroids=self.centroids).to(some.x.device)
        room = kept.value
        n, pixels = room.axes.shape[1], some.x[0].numel()
        what = f"images of {n} numbers, for which the network has room"
        expect(n == pixels, what, pixels, do="set its size")
        axes, centroids = len(room.axes), len(room.inside)
        found = fitted(some.x, some.outliers, generator, axes=axes, centroids=centroids)
        return kept.put(found)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        assert isinstance(batch.memory, Kept)
        both, n = torch.cat([batch.x, batch.outliers]), len(batch.x)
        z = model(both).logits.float()
        mixtures, learnt = _followed(batch.memory)
        log_in, log_out = mixtures.log_densities(both)
        log_out = log_out + math.log(self.weight)
        log_q = blended(z, log_in - log_out)
        own = log_q[:n].gather(1, batch.y[:, None])
        loss = -(own.mean() + log_q[n:].mean()) / 2
        evidence = torch.logaddexp(log_in, log_out)
        wanted = loss.double() - (evidence[:n].mean() + evidence[n:].mean()) / 2
        slopes = torch.autograd.grad(wanted, list(learnt.values()), retain_graph=True)
        self._follow(batch.memory, dict(zip(learnt, slopes, strict=True)))
        return loss

    @torch.no_grad()
    def _follow(self, kept: Kept, slopes: dict[str, Tensor]) -> None:
        for name, slope in slopes.items():
            step = self.rate * slope
            if name.startswith("log_var"):
                step = step.clamp(-LARGEST, LARGEST)
            kept.get_buffer(name).sub_(step)
        least = kept.get_buffer("log_var_in").max() + math.log(WIDER)
        out = kept.get_buffer("log_var_out")
        out.copy_(torch.maximum(out, least))


def blended(z: Logits, log_odds: Scores) -> Logits:
    """log q: the log softmax of z where the odds of being ID are high, else uniform."""
    log_p, odds = z.log_softmax(dim=1), log_odds[:, None]
    uniform = logsigmoid(-odds) - math.log(z.shape[1])
    return torch.logaddexp(log_p + logsigmoid(odds), uniform).to(z.dtype)


def _followed(kept: Kept) -> tuple[Mixtures, dict[str, Tensor]]:
    """The mixtures, and their learnt tensors as leaves."""
    learnt = {n: kept.get_buffer(n).detach().clone().requires_grad_() for n in LEARNT}
    return kept.value._replace(**learnt), learnt
