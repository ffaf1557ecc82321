"""Distance to the k-th nearest training feature."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.shapes import Features, Images, Labels, Scores

BOXED = 1024  # bank rows bounded at once
CHUNK = 65_536  # bank rows compared at once: bounds memory, not the bank


class KNN(OutputDetector):
    r"""s(x) = || u - u_(k) ||^2, with u = f / ||f|| and u_(k) its k-th nearest in the bank.

    Sun et al., *Out-of-Distribution Detection with Deep Nearest Neighbors*, ICML 2022,
    arXiv:2204.06507; squared as in OpenOOD, the same ranking. Exact search; the gradient flows
    through the chosen neighbour. A query that is itself in the bank counts as its own neighbour.
    """

    gradient = "almost_everywhere"
    bounded = ("features",)

    bank_: Float[Tensor, "n d"]

    def __init__(self, model: Model, *, k: int = 50) -> None:
        super().__init__(model)
        if k < 1:
            raise InputError(f"expected k >= 1 neighbours, got {k}")
        self.k = k

    def start(self) -> None:
        self._parts = _Rows()

    def see(self, out: Outputs, labels: Labels) -> None:
        self._parts.append(normalize(out.features.detach(), dim=1))

    def finish(self) -> None:
        seen = self._parts
        del self._parts
        if len(seen) < self.k:
            raise InputError(
                f"expected at least k = {self.k} training images, got {len(seen)}: "
                "lower k or give more"
            )
        self.bank_ = seen.pop_all(self.model.mean.device)

    def score_outputs(self, out: Outputs) -> Scores:
        u = normalize(out.features, dim=1)
        return _squared(u, self.bank_[self._nearest(u)[:, -1]])

    def bounds_from(self, out: OutputBox) -> Box:
        """The k-th smallest of lower bounds of all distances is below the k-th distance.

        `_nearest` chooses by inner products: rows of other lengths than 1 may come in another
        order, by at most the difference of their squared lengths.
        """
        squares = self.bank_.double().square().sum(dim=1)
        parts = [self._distances(out.features, part) for part in self.bank_.split(BOXED)]
        least = torch.cat([p.low for p in parts], dim=1)
        most = torch.cat([p.high for p in parts], dim=1)
        found = Box(*(v.kthvalue(self.k, dim=1).values for v in (least, most)))
        return found.widened(squares.max() - squares.min())

    def _distances(self, f: Box, bank: Features) -> Box:
        """|| f / |f| - u ||^2 = |f / |f||^2 + |u|^2 - 2 f.u / |f|, and entry by entry."""
        bank = bank.double()
        squares = f.squared()
        length = Box(squares.low.sum(dim=1).sqrt(), squares.high.sum(dim=1).sqrt())
        over = Box(*(1 / v.clamp_min(1e-12)[:, None] for v in (length.high, length.low)))
        # the length of a feature of which all entries may be 0 is not 1 but less
        own = Box((length.low > 1e-12).double()[:, None], torch.ones_like(over.low))
        unit = f.times(over).within(Box(-torch.ones_like(f.low), torch.ones_like(f.low)))
        product = f.linear(bank).times(over)
        norm = bank.square().sum(dim=1)
        whole = Box(own.low + norm - 2 * product.high, own.high + norm - 2 * product.low)
        each = [(unit.moved(-u)).squared() for u in bank]
        low, high = (torch.stack([e[i].sum(dim=1) for e in each], dim=1) for i in (0, 1))
        return Box(low, high).within(whole).widened(1e-12)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The mean over the k nearest: it does not jump when the k-th changes."""

        def mean(x: Images) -> Scores:
            u = normalize(self.model(x).features, dim=1)
            return _squared(u[:, None], self.bank_[self._nearest(u)]).mean(dim=1)

        return (mean,)

    @torch.no_grad()
    def _nearest(self, u: Features) -> Int[Tensor, "b k"]:
        """The k nearest bank rows, nearest first, selected by inner products."""
        best = u.new_empty(u.shape[0], 0)  # not len(u), which torch.export takes for a constant
        rows = torch.empty(u.shape[0], 0, dtype=torch.long, device=u.device)
        for at, part in zip(range(0, len(self.bank_), CHUNK), self.bank_.split(CHUNK), strict=True):
            near, place = (u @ part.T).topk(min(self.k, len(part)), dim=1)
            best, rows = torch.cat([best, near], dim=1), torch.cat([rows, place + at], dim=1)
            keep = best.topk(min(self.k, best.shape[1]), dim=1).indices
            best, rows = best.gather(1, keep), rows.gather(1, keep)
        return rows


def _squared(u: Tensor, v: Tensor) -> Tensor:
    """By differences: 2 - 2 u.v loses the digits of a small distance."""
    return ((u - v) ** 2).sum(dim=-1)


class _Rows:
    """Rows in their order, in main memory, never held twice.

    Blocks are so large that each returns to the system when freed; unwritten parts take no memory.
    """

    def __init__(self) -> None:
        self._blocks: list[Tensor] = []
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, rows: Features) -> None:
        while len(rows):
            used = self._n % CHUNK
            if used == 0:
                self._blocks.append(torch.empty(CHUNK, rows.shape[1], dtype=rows.dtype))
            now, rows = rows.tensor_split([CHUNK - used])
            self._blocks[-1][used : used + len(now)] = now
            self._n += len(now)

    def pop_all(self, device: torch.device) -> Float[Tensor, "n d"]:
        """All rows in one tensor; this list is empty afterwards."""
        rows = self._blocks[0].new_empty(self._n, self._blocks[0].shape[1], device=device)
        for part in rows.split(CHUNK):
            part[:] = self._blocks.pop(0)[: len(part)]
        self._n = 0
        return rows
