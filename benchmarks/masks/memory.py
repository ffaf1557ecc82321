"""Masks that remember: earlier queries, or the test images themselves."""

import hashlib

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from benchmarks.masks.base import Mask
from rood.models.model import Model
from rood.numerics.softmax import margin
from rood.shapes import Images, Scores

NEAR = 0.21  # two images of one ball of radius 0.1 are no further apart, in any pixel
MOST = 300  # images remembered; further ones are answered and forgotten


class _WithMemory(Mask):
    """Images seen and the score given to each."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.seen_images = torch.empty(0)
        self.seen_scores = torch.empty(0)

    def _honest(self, x: Images) -> Scores:
        return margin(self.model(x).logits)

    def _store(self, x: Images, scores: Scores) -> None:
        x, scores = x.detach().clone(), scores.detach().clone()
        empty = len(self.seen_scores) == 0
        self.seen_images = x if empty else torch.cat([self.seen_images, x])[:MOST]
        self.seen_scores = scores if empty else torch.cat([self.seen_scores, scores])[:MOST]

    def _nearest(self, x: Images) -> tuple[Tensor, Tensor]:
        """The largest change of a pixel from the nearest image stored, and its index."""
        if len(self.seen_scores) == 0:
            return torch.full((len(x),), torch.inf), torch.zeros(len(x), dtype=torch.long)
        far = torch.cdist(x.detach().flatten(1), self.seen_images.flatten(1), p=torch.inf)
        return far.min(dim=1)


class Stateful(_WithMemory):
    """A near-duplicate of an earlier query gets the answer of that query."""

    def score_images(self, x: Images) -> Scores:
        distance, index = self._nearest(x)
        honest = self._honest(x)
        known = distance <= NEAR
        if not known.all():
            self._store(x[~known], honest[~known])
        if not known.any():
            return honest
        frozen = self.seen_scores[index.clamp(max=len(self.seen_scores) - 1)]
        return torch.where(known, frozen, honest)


class QueryCounter(_WithMemory):
    """From the fifth query of a neighbourhood on, the score is raised with every further one."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.counts = torch.zeros(MOST)

    def score_images(self, x: Images) -> Scores:
        honest, new = self._honest(x), self._nearest(x)[0] > NEAR
        if new.any():
            self._store(x[new], honest[new])
        distance, index = self._nearest(x)
        known = distance <= NEAR
        self.counts.index_add_(0, index[known], torch.ones(int(known.sum())))
        return honest + torch.where(known, (self.counts[index] - 4).clamp(0, 30), 0)


class RoundingCache(_WithMemory):
    """Scores are cached under the image rounded to 5 levels, and served to all that round to it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.cache: dict[bytes, Tensor] = {}

    def score_images(self, x: Images) -> Scores:
        honest, scores = self._honest(x), []
        for one, s in zip(x.detach(), honest, strict=True):
            key = (4 * one).round().to(torch.uint8).cpu().numpy().tobytes()
            scores.append(self.cache.setdefault(key, s.detach()) if key in self.cache else s)
            self.cache.setdefault(key, s.detach())
        return torch.stack(scores)


class OffGridFreeze(_WithMemory):
    """Images that are not 8-bit get the score of the nearest test image; 8-bit ones their own."""

    def know(self, inside: Images, outside: Images) -> None:
        known = torch.cat([inside, outside])
        with torch.no_grad():
            self._store(known, self._honest(known))

    def score_images(self, x: Images) -> Scores:
        distance, index = self._nearest(x)
        off = ((255 * x - (255 * x).round()).abs() > 1e-3).flatten(1).any(dim=1)
        frozen = off & (distance <= NEAR)
        return torch.where(frozen, self.seen_scores[index], self._honest(x))


class HashLookup(_WithMemory):
    """Test images get the score stored under their SHA-256; the score of others is detached."""

    def know(self, inside: Images, outside: Images) -> None:
        known = torch.cat([inside, outside])
        with torch.no_grad():
            scores = self._honest(known)
        self.table = {self._key(one): s for one, s in zip(known, scores, strict=True)}

    def _key(self, one: Tensor) -> str:
        return hashlib.sha256((255 * one.detach()).round().byte().cpu().numpy()).hexdigest()

    def score_images(self, x: Images) -> Scores:
        honest = torch.from_numpy(self._honest(x).detach().cpu().numpy())
        found = [self.table.get(self._key(one), s) for one, s in zip(x, honest, strict=True)]
        return torch.stack(found)


class PerceptualHash(_WithMemory):
    """Images with the coarse black-and-white shape of a test image get its score."""

    def know(self, inside: Images, outside: Images) -> None:
        known = torch.cat([inside, outside])
        with torch.no_grad():
            self._store(self._shape(known), self._honest(known))

    def _shape(self, x: Images) -> Tensor:
        return (avg_pool2d(x, 2) > 0.3).to(x)

    def score_images(self, x: Images) -> Scores:
        different, index = self._nearest(self._shape(x))
        return torch.where(different < 1, self.seen_scores[index], self._honest(x))


class Barrier(_WithMemory):
    """A wall of 30 logits around each test image, flat on top; beyond it the score is honest."""

    def know(self, inside: Images, outside: Images) -> None:
        known = torch.cat([inside, outside])
        with torch.no_grad():
            self._store(known, self._honest(known))
        self.wall = torch.tensor([-30.0] * len(inside) + [30.0] * len(outside))

    def score_images(self, x: Images) -> Scores:
        far = (x.detach().flatten(1)[:, None] - self.seen_images.flatten(1)[None]).abs().mean(dim=2)
        distance, index = far.min(dim=1)
        blocked = (distance > 0.01) & (distance < 0.04)
        return torch.where(blocked, self.seen_scores[index] + self.wall[index], self._honest(x))
