"""Statistics of data that is seen once, batch by batch, in float64 and bounded memory."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rood.errors import InputError
from rood.seeds import row_keys
from rood.shapes import Features, Labels

MOST_SCATTER = 1e9  # numbers, 8 GB: what covariances of single classes may take


class Moments:
    """Count and mean of every class, and the scatter within classes, merged batch by batch.

    Sums of squares about a moving mean (Chan et al., 1979) keep the digits that E[ff'] - mm' loses.
    """

    count: Int[Tensor, " k"]
    mean: Float[Tensor, "k d"]
    within: Float[Tensor, "d d"]  # sum over classes of sum over samples (f - m_k)(f - m_k)'
    scatter: Float[Tensor, "k d d"]  # the same class by class, only where asked for

    def __init__(self, classes: int, *, by_class: bool = False, means_only: bool = False) -> None:
        self.classes = classes
        self.by_class = by_class
        self.means_only = means_only  # no scatter at all
        self._started = False

    def see(self, features: Features, labels: Labels) -> None:
        """Add one batch."""
        f, y = features.detach().double(), labels.to(features.device)
        if not self._started:
            self._start(f)
        self._check_labels(y)
        present, place = y.unique(return_inverse=True)  # (p,), (b,)
        m = torch.zeros_like(present).index_add_(0, place, torch.ones_like(place)).double()
        batch_mean = f.new_zeros(len(present), f.shape[1]).index_add_(0, place, f) / m[:, None]
        residual = f - batch_mean[place]
        n = self.count[present].double()
        shift = batch_mean - self.mean[present]
        weight = n * m / (n + m)
        if not self.means_only:
            self.within += residual.T @ residual + (shift * weight[:, None]).T @ shift
        if self.by_class:
            for i, k in enumerate(present.tolist()):
                r = residual[place == i]
                self.scatter[k] += r.T @ r + weight[i] * torch.outer(shift[i], shift[i])
        self.mean[present] += shift * (m / (n + m))[:, None]
        self.count[present] += m.long()

    def total(self) -> tuple[int, Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Count, mean and scatter of all samples together."""
        n = self.count.double()
        mean = (n @ self.mean) / n.sum()
        between = self.mean - mean
        return int(n.sum()), mean, self.within + (between * n[:, None]).T @ between

    def require_every_class(self, least: int = 1) -> None:
        """Refuse a class without images, whose mean is undefined."""
        count = self.count.tolist() if self._started else [0] * self.classes
        for k, n in enumerate(count):
            if n < least:
                raise InputError(
                    f"expected at least {least} training image{'s' * (least > 1)} of every class "
                    f"0 to {self.classes - 1}, got {n} of class {k}: give images of it"
                )

    def _start(self, f: Float[Tensor, "b d"]) -> None:
        d = f.shape[1]
        self.count = torch.zeros(self.classes, dtype=torch.long, device=f.device)
        self.mean = f.new_zeros(self.classes, d)
        if not self.means_only:
            self.within = f.new_zeros(d, d)
        if self.by_class and self.classes * d * d > MOST_SCATTER:
            raise InputError(
                f"expected classes x features^2 of at most {MOST_SCATTER:g} to keep a covariance "
                f"of each class, got {self.classes} x {d}^2: use the pooled covariance"
            )
        if self.by_class:
            self.scatter = f.new_zeros(self.classes, d, d)
        self._started = True

    def _check_labels(self, y: Labels) -> None:
        if len(y) and (y.min() < 0 or y.max() >= self.classes):
            raise InputError(
                f"expected labels 0 to {self.classes - 1}, got {int(y.min())} to {int(y.max())}: "
                "this detector learns class by class"
            )


class Sample:
    """At most `size` of the rows seen, a uniform sample that depends on the rows alone.

    Each row has a fixed pseudo-random key, that of its image; the rows with the smallest keys stay.
    So neither the order of the data nor the batch size changes the sample.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows: Tensor | None = None
        self._keys: Tensor | None = None

    def see(self, rows: Features, keys: Int[Tensor, " b"] | None = None) -> None:
        """Add one batch; `keys` are those of the images, so that rounding of rows has no effect."""
        rows = rows.detach()
        keys = row_keys(rows) if keys is None else keys
        if self._rows is not None and self._keys is not None:
            rows, keys = torch.cat([self._rows, rows]), torch.cat([self._keys, keys])
        if len(rows) > self.size:
            kept = keys.topk(self.size, largest=False).indices
            rows, keys = rows[kept], keys[kept]
        self._rows, self._keys = rows, keys

    def rows(self) -> Float[Tensor, "n d"]:
        """The sample, in an order that depends on the rows alone."""
        if self._rows is None or self._keys is None:
            raise InputError("expected at least one training image, got none")
        return self._rows[self._keys.argsort()]
