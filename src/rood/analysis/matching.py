"""Give an OOD image the code of an ID image: an attack on all scores that depend on the code alone.

Liang et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*,
arXiv:2009.08016. An image with the code of x_in has the score of x_in, so that a perfect match ends
at an AUROC of 1/2. Attacks on the score itself end near 0: do not compare the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rood.attacks.base import Attack, Goal
from rood.data.procedural import draw
from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.odin import ODIN
from rood.errors import InputError, expect
from rood.goals import Encoder as Encoder
from rood.goals import features as features
from rood.goals import match as match
from rood.metrics import Floats, auroc
from rood.models.model import Model
from rood.seeds import Noise, generator
from rood.shapes import Features, Images, Scores, wide
from rood.threat import Threat

CLOSE = 1e-3  # a MAPE below which the paper calls codes equal: 0.1 %
BATCH = 256  # images that go through a network together


# encoders


def logits(model: Model) -> Encoder:
    """The encoder whose code is the logits."""
    return lambda x: model(x).logits


def layers(model: Model, names: Sequence[str], *, pooled: bool = True) -> Encoder:
    """The maps of several layers side by side: the mean over places, or every entry."""
    model.layers(names)  # an unknown name is refused here, not in the attack

    def flat(maps: Tensor) -> Features:
        if pooled and maps.ndim > 2:
            return maps.flatten(2).mean(dim=2)
        return maps.flatten(1)

    return lambda x: torch.cat([flat(m) for m in model(x, names).maps], dim=1)


def ensemble_logits(models: Sequence[Model]) -> Encoder:
    """The logits of several networks side by side."""
    if not models:
        raise InputError("expected at least one network to match, got none")
    return lambda x: torch.cat([m(x).logits for m in models], dim=1)


def preprocessed_logits(odin: ODIN) -> Encoder:
    """The logits of the image that ODIN makes of x; to the gradient its step is a constant."""
    return lambda x: odin.model(odin.stepped(x)).logits


def score_of(detector: Detector) -> Encoder:
    """The score itself, as a code of one number."""
    detector.check_fitted()
    return lambda x: detector.score_images(x)[:, None]


# where to start, one image for each of x_in


def noise_starts(x_in: Images, seed: int = 0) -> Images:
    """Uniform noise, different for every image."""
    return Noise(x_in, generator(seed, "noise starts")).uniform()


def spiral_starts(x_in: Images) -> Images:
    """One colour spiral, stretched to the whole range of pixels."""
    c, h, w = x_in.shape[1:]
    spiral = torch.from_numpy(draw("spiral", 1, 0, (c, h, w))).to(x_in)
    low, high = torch.aminmax(spiral)
    return image_starts(x_in, ((spiral - low) / (high - low))[0])


def checkerboard_starts(x_in: Images, n: int = 2) -> Images:
    """A board of n x n black and white fields, white first."""
    h, w = x_in.shape[2:]
    if not 1 <= n <= min(h, w):
        raise InputError(f"expected 1 to {min(h, w)} fields along the sides of {h}x{w}, got {n}")
    row, column = (torch.arange(size, device=x_in.device) * n // size for size in (h, w))
    board = 1 - (row[:, None] + column) % 2
    return board.to(x_in.dtype).expand_as(x_in).contiguous()


def image_starts(x_in: Images, image: Float[Tensor, "c h w"]) -> Images:
    """Any one image."""
    if image.shape != x_in.shape[1:]:
        shapes = f"{tuple(x_in.shape[1:])}, got {tuple(image.shape)}"
        raise InputError(f"expected a start of the images' shape {shapes}: resize it")
    return image.to(x_in).expand_as(x_in).contiguous()


# the attack


@dataclass(frozen=True, eq=False)
class Matched:
    """One attacked image for each in-distribution image, and how close the codes came."""

    inside: Images
    images: Images  # found, each to have the code of its row of `inside`
    mape: Floats  # mean |f(x) - f(x_in)| / max |f(x_in)| of each pair
    losses: Float[Tensor, "t b"]  # |f(x) - f(x_in)|^2 each time the attack asked: flat, it is done

    @torch.no_grad()
    def auroc(self, score: ScoreFunction) -> float:
        """AUROC of a score between the attacked images and those whose codes they have."""
        of = lambda x: torch.cat([score(part) for part in x.split(BATCH)])
        return auroc(inside=of(self.inside), outside=of(self.images))


def attack_pairs(
    encoder: Encoder,
    x_in: Images,
    starts: Images,
    attack: Attack,
    threat: Threat,
    *,
    seed: int = 0,
    batch: int = BATCH,
) -> Matched:
    """Move each start, within the threat model, until it has the code of its row of `x_in`.

    Parameters
    ----------
    encoder : function
        From images to codes (n, d): `features`, `logits`, `layers`, ...
    x_in, starts : Tensor of shape (n, c, h, w)
        ID images, and for each an image to start from.
    attack : Attack
        Such as `FeatureMatch.liang()`.
    threat : Threat
        Around the starts.
    seed, batch : int

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> matching = rood.analysis.matching
    >>> found = matching.attack_pairs(
    ...     matching.logits(model),
    ...     x,
    ...     matching.noise_starts(x),
    ...     rood.attacks.FeatureMatch(steps=20),
    ...     rood.threat.L2(5.0),
    ... )
    >>> found.images.shape, bool((found.mape < 0.1).all())
    (torch.Size([4, 1, 28, 28]), True)
    """
    if x_in.shape != starts.shape:
        shapes = f"{tuple(x_in.shape)} and {tuple(starts.shape)}"
        raise InputError(f"expected one start for each in-distribution image, got {shapes}")
    expect(batch >= 1 and len(x_in) > 0, "images and batch >= 1", len(x_in), batch)
    found, error, losses = [], [], []
    for x, start in zip(x_in.split(batch), starts.split(batch), strict=True):
        with torch.no_grad():
            codes = encoder(x)
        goal = match(encoder, codes)
        recorded, asked = _recorded(goal)
        # a fresh generator for each batch, or results would depend on the size of batches
        climb = replace(attack, compare=False)  # the comparison with the start is not a step
        climbed = climb(recorded, start, threat, generator(seed, "match"))
        losses.append(-torch.stack(asked))
        with torch.no_grad():
            better = (goal(climbed) > goal(start)) | (not attack.compare)
            found.append(torch.where(wide(better), climbed, start))
            error.append(mape(encoder(found[-1]), codes))
    shortest = min(len(part) for part in losses)
    curves = torch.cat([part[:shortest] for part in losses], dim=1)
    return Matched(x_in, torch.cat(found), np.concatenate(error), curves)


def mape(found: Any, target: Any) -> Floats:
    """mean_i |a_i - b_i| / max_i |b_i| for each row a, b; for b = 0, 0 if a = 0, else infinite."""
    a, b = (torch.as_tensor(v).detach().cpu().double().numpy() for v in (found, target))
    if a.shape != b.shape or a.ndim != 2 or 0 in a.shape:
        both = f"{a.shape} and {b.shape}"
        raise InputError(f"expected features of one shape (n, d), got {both}: flatten each image's")
    if np.isnan(a).any() or np.isnan(b).any():
        raise InputError("expected no NaN in found and target features, got some: drop those rows")
    error, scale = np.abs(a - b).mean(axis=1), np.abs(b).max(axis=1)
    return np.divide(error, scale, out=np.where(error > 0, np.inf, 0.0), where=scale > 0)


def _recorded(goal: Goal) -> tuple[Goal, list[Scores]]:
    """The goal, and every answer it will give for all of its images at once."""
    asked: list[Scores] = []

    def ask(x: Images) -> Scores:
        values = goal(x)
        if not asked or len(values) == len(asked[0]):
            asked.append(values.detach())
        return values

    return replace(goal, function=ask), asked
