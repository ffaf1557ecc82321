"""The batches of every training step, drawn and moved on the device where the data lies."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from rood.data.base import ImageSet
from rood.seeds import generator
from rood.shapes import Images
from rood.training.objectives.base import Batch
from rood.training.settings import Augment, Settings


class Feed:
    """Step by step what is trained on: a function of the seed, the epoch and the step alone."""

    def __init__(
        self, data: ImageSet, outliers: ImageSet | None, settings: Settings, device: torch.device
    ) -> None:
        assert data.labels is not None
        self.settings, self.device = settings, device
        self.images, self.labels = data.images.to(device), data.labels.long().to(device)
        self.outliers = None if outliers is None else outliers.images.to(device)
        self.size = min(settings.batch_size, len(data))
        self.steps = len(data) // self.size  # what is left over waits for another epoch
        self._orders: dict[str, tuple[int, Tensor]] = {}

    def batch(self, epoch: int, step: int) -> Batch:
        """What step number `step` of an epoch trains on."""
        which = self._places("images", len(self.images), self.size, epoch, step)
        x = self._pixels("images", self.images[which], epoch, step)
        if self.outliers is None:
            return Batch(x, self.labels[which])
        size = self.settings.outlier_batch or self.size
        others = self._places("outliers", len(self.outliers), size, epoch, step)
        return Batch(
            x, self.labels[which], self._pixels("outliers", self.outliers[others], epoch, step)
        )

    def _places(self, what: str, n: int, size: int, epoch: int, step: int) -> Int[Tensor, " s"]:
        """A share of a shuffle of all n places; of several, where an epoch needs more than n."""
        if self._orders.get(what, (0, None))[0] != epoch:
            source = generator(self.settings.seed, "order", what, epoch)
            rounds = -(-self.steps * size // n)
            order = torch.cat([torch.randperm(n, generator=source) for _ in range(rounds)])
            self._orders[what] = epoch, order.to(self.device)
        return self._orders[what][1][step * size : (step + 1) * size]

    def _pixels(self, what: str, images: Tensor, epoch: int, step: int) -> Images:
        augment = self.settings.augment
        if augment.shift or augment.flip:
            source = generator(self.settings.seed, "augment", what, epoch, step)
            images = augmented(images, augment, source)
        x = images.float()
        return x / 255 if images.dtype == torch.uint8 else x


def augmented(images: Tensor, augment: Augment, source: torch.Generator) -> Tensor:
    """Each image moved and mirrored by a draw of its own, all in one gather."""
    n, _, h, w = images.shape
    s = augment.shift
    down, right = torch.randint(0, 2 * s + 1, (2, n, 1), generator=source)
    rows = down + torch.arange(h)  # (n, h)
    columns = right + torch.arange(w)  # (n, w)
    if augment.flip:
        mirrored = torch.rand(n, 1, generator=source) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    places = (torch.arange(n).view(n, 1, 1), rows[:, :, None], columns[:, None, :])
    every, rows, columns = (place.to(images.device) for place in places)
    moved = pad(images, (s, s, s, s))[every, :, rows, columns]  # (n, h, w, c)
    return moved.permute(0, 3, 1, 2)
