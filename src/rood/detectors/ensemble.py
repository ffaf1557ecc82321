"""The mean score of several detectors."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.energy import Energy
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model
from rood.numerics.box import Box
from rood.shapes import Batches, Images, Scores


class Ensemble(Detector):
    r"""s(x) = (1/n) sum_i (s_i(x) - a_i) / b_i over members on the same pixels.

    a = 0 and b = 1 (`scale="raw"`) is the ensemble of Fort, *Adversarial vulnerability of powerful
    near out-of-distribution detection*, 2022, arXiv:2201.07012; with `scale="normal"`, a and b are
    mean and standard deviation of s_i on the training images. Members may have different networks.
    """

    offset_: Float[Tensor, " n"]
    spread_: Float[Tensor, " n"]

    def __init__(
        self, members: Sequence[Detector], *, scale: Literal["raw", "normal"] = "raw"
    ) -> None:
        if not members:
            raise InputError("expected at least one detector in an ensemble, got none")
        if scale not in ("raw", "normal"):
            raise InputError(f"expected scale raw or normal, got {scale!r}")
        super().__init__(members[0].model)
        self.members = nn.ModuleList(members)
        self.scale = scale
        if scale == "raw":  # nothing to learn beyond what the members did
            self.offset_, self.spread_ = self._neutral()

    @classmethod
    def example(cls, model: Model) -> "Ensemble":
        """Two scores of one network, for the contract checks."""
        return cls([MSP(model), Energy(model)], scale="normal")

    def fit_images(self, batches: Batches) -> None:
        if self.scale == "raw":
            self.offset_, self.spread_ = self._neutral()
            return
        found = [self._each(x).double() for x, _ in batches]
        if sum(map(len, found)) < 2:
            raise InputError(
                "expected batches that can be iterated twice to scale by, got none the second time"
            )
        scores = torch.cat(found)  # (n, members)
        self.offset_, self.spread_ = scores.mean(dim=0), scores.std(dim=0).clamp_min(1e-12)

    def score_images(self, x: Images) -> Scores:
        return ((self._each(x) - self.offset_) / self.spread_).mean(dim=1).to(x.dtype)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The score of each member, and its surrogates."""
        members = [m for m in self.members if isinstance(m, Detector)]
        own = [m.score_images for m in members]
        return (*own, *(s for m in members for s in m.surrogates()))

    def bounds_around(self, x: Images, inner: Callable[[Detector, Images], Box]) -> Box:
        """The mean of the members' ends: each member may be at its end on another image."""
        each = [inner(m, x) for m in self.members if isinstance(m, Detector)]
        ends = (torch.stack(v, dim=1) for v in zip(*each, strict=True))
        offset, spread = self.offset_.double(), self.spread_.double()
        return Box(*(((v - offset) / spread).mean(dim=1) for v in ends))

    def cost(self) -> tuple[int, int]:
        costs = [m.cost() for m in self.members if isinstance(m, Detector)]
        return sum(c[0] for c in costs), sum(c[1] for c in costs)

    def _each(self, x: Images) -> Float[Tensor, "b n"]:
        each = [m.score_images(x) for m in self.members if isinstance(m, Detector)]
        return torch.stack(each, dim=1)

    def _neutral(self) -> tuple[Tensor, Tensor]:
        like = torch.zeros(len(self.members), dtype=torch.float64, device=self.model.mean.device)
        return like, torch.ones_like(like)
