"""The batches of every training step, drawn and augmented on the device of the data."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from rood.data.base import ImageSet
from rood.errors import expect
from rood.seeds import generator
from rood.shapes import Images
from rood.training.augmix import DRAWS, mixed
from rood.training.objectives.base import Batch
from rood.training.parallel import ALONE, Rank
from rood.training.settings import Augment, Settings


class Feed:
    """The batch of each step: a function of seed, epoch and step alone.

    Each of several processes gets its share, augmented as it would be in a single process.
    """

    def __init__(
        self,
        data: ImageSet,
        outliers: ImageSet | None,
        settings: Settings,
        device: torch.device,
        share: Rank = ALONE,
    ) -> None:
        assert data.labels is not None
        self.settings, self.device, self.share = settings, device, share
        self.images, self.labels = data.images.to(device), data.labels.long().to(device)
        self.outliers = None if outliers is None else outliers.images.to(device)
        self.size = min(settings.batch_size, len(data))
        self.outlier_size = settings.outlier_batch or self.size
        self.steps = len(data) // self.size  # the rest is left out of this epoch
        self._orders: dict[str, tuple[int, Tensor]] = {}
        for size in (self.size, self.outlier_size):
            what = f"a batch that {share.processes} processes can share evenly"
            expect(size % share.processes == 0, what, f"{size} images")

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of step `step` in an epoch."""
        which = self._places("images", len(self.images), self.size, epoch, step)
        x = self._pixels("images", self.images[which], self.size, epoch, step)
        if self.outliers is None:
            return Batch(x, self.labels[which])
        size = self.outlier_size
        others = self._places("outliers", len(self.outliers), size, epoch, step)
        return Batch(
            x,
            self.labels[which],
            self._pixels("outliers", self.outliers[others], size, epoch, step),
        )

    def some(self, n: int) -> Batch:
        """Up to n images and n outliers, evenly spaced, not augmented."""
        x, y = _thin(self.images, n), _thin(self.labels, n)
        outliers = None if self.outliers is None else _unit(_thin(self.outliers, n))
        return Batch(_unit(x), y, outliers)

    def _places(self, what: str, n: int, size: int, epoch: int, step: int) -> Int[Tensor, " s"]:
        """Indices of a step, from one shuffle of all n, or several where an epoch needs more."""
        if self._orders.get(what, (0, None))[0] != epoch:
            source = generator(self.settings.seed, "order", what, epoch)
            rounds = -(-self.steps * size // n)
            order = torch.cat([torch.randperm(n, generator=source) for _ in range(rounds)])
            self._orders[what] = epoch, order.to(self.device)
        return self.share.of(self._orders[what][1][step * size : (step + 1) * size])

    def _pixels(self, what: str, images: Tensor, size: int, epoch: int, step: int) -> Images:
        augment, seed = self.settings.augment, self.settings.seed
        if augment.shift or augment.flip:
            moves = drawn_moves(size, augment, generator(seed, "augment", what, epoch, step))
            images = moved(images, augment.shift, self._sent(moves))
        x = _unit(images)
        if augment.augmix:
            source = generator(seed, "augmix", what, epoch, step)
            x = mixed(x, augment.augmix, self._sent(torch.rand(size, DRAWS, generator=source)))
        return x

    def _sent(self, draws: Tensor) -> Tensor:
        """This process's share on the device, through pinned memory so that no step waits."""
        draws = self.share.of(draws)
        if self.device.type != "cuda":
            return draws.to(self.device)
        return draws.contiguous().pin_memory().to(self.device, non_blocking=True)


def _unit(images: Tensor) -> Images:
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _thin(rows: Tensor, n: int) -> Tensor:
    every = torch.linspace(0, len(rows) - 1, min(n, len(rows)), dtype=torch.float64)
    return rows[every.round().long().to(rows.device)]


def drawn_moves(n: int, augment: Augment, source: torch.Generator) -> Int[Tensor, "{n} 3"]:
    """Per image: row and column of the crop, and whether it is mirrored."""
    places = torch.randint(0, 2 * augment.shift + 1, (2, n), generator=source)
    mirrored = torch.rand(n, generator=source) < 0.5 if augment.flip else torch.zeros(n)
    return torch.cat([places, mirrored.long()[None]]).T


def moved(images: Tensor, shift: int, moves: Int[Tensor, "n 3"]) -> Tensor:
    """Every image shifted and mirrored by its own draw, in one gather."""
    n, _, h, w = images.shape
    s, device = shift, images.device
    down, right, mirrored = moves.view(n, 3, 1).unbind(dim=1)  # (n, 1)
    rows = down + torch.arange(h, device=device)  # (n, h)
    columns = right + torch.arange(w, device=device)  # (n, w)
    columns = torch.where(mirrored.bool(), columns.flip(1), columns)
    every = torch.arange(n, device=device).view(n, 1, 1)
    cut = pad(images, (s, s, s, s))[every, :, rows[:, :, None], columns[:, None, :]]
    return cut.permute(0, 3, 1, 2)  # from (n, h, w, c)
