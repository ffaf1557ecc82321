"""Diagnostics of PRO: how far scores move under small steps, how rough they are, how bounded.

Chen et al., *Leveraging Perturbation Robustness to Enhance Out-of-Distribution Detection*,
CVPR 2025, arXiv:2503.18784: equations 2 and 3, figures 3, 6 and 7, and claim 1.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rood.attacks.base import Attack, Goal
from rood.detectors.base import ScoreFunction
from rood.detectors.pro import PRO
from rood.goals import misclassify
from rood.models.model import Model
from rood.numerics.softmax import log_entropy, margin
from rood.shapes import Images, Labels, Scores
from rood.threat import Threat


def score_shift(pro: PRO, x: Images) -> Scores:
    """max_t |s0(x) - s0(x_t)| along PRO's own steps, for each image (figures 3 and 7).

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> pro = rood.detectors.PRO(rood.detectors.MSP(model), eps=1e-3, steps=1)
    >>> bool((rood.analysis.rectification.score_shift(pro, x) > 0).all())
    True
    """
    _, scores = pro.climb(x)
    return (scores - scores[0]).abs().amax(dim=0)


@torch.no_grad()
def landscape(
    score: ScoreFunction, x: Images, generator: Generator, *, radius: float, points: int = 21
) -> Float[Tensor, "b p q"]:
    """The score on x + a u + b v for two random directions of unit size in every pixel (figure 6).

    u and v have entries of +1 or -1, so that a and b are in pixel units.

    Parameters
    ----------
    score : function
        From images to one number each, such as `Detector.score_images`.
    x : Tensor of shape (b, c, h, w)
    generator : torch.Generator
        Draws u and v.
    radius : float
        Largest |a| and |b|.
    points : int
        Values of a and of b.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> score = rood.detectors.Energy(model).score_images
    >>> g = torch.Generator().manual_seed(0)
    >>> rood.analysis.rectification.landscape(score, x, g, radius=0.01, points=3).shape
    torch.Size([4, 3, 3])
    """
    u, v = (torch.randint(0, 2, x[:1].shape, generator=generator).to(x) * 2 - 1 for _ in range(2))
    axis = torch.linspace(-radius, radius, points).to(x)
    rows = [torch.stack([score(x + a * u + b * v) for b in axis], dim=1) for a in axis]
    return torch.stack(rows, dim=1)


@dataclass(frozen=True)
class Bounds:
    """Claim 1, measured: what attacks found, and what the worst cross-entropy they found allows.

    `worst_loss` is found by attack, a lower bound of the true one; so the bounds are estimates. All
    numbers are over the same points, where the claim cannot fail: what they tell is the gap.
    """

    worst_loss: float  # E, the mean over images of the largest cross-entropy in the ball
    msp_found: float  # mean of the smallest max p in the ball
    msp_bound: float  # >= exp(-E)
    entropy_found: float  # mean of the largest entropy in the ball
    entropy_bound: float  # <= phi(exp(-E))


def claim_bounds(
    model: Model, x: Images, y: Labels, threat: Threat, attack: Attack, generator: Generator
) -> Bounds:
    """Attack cross-entropy, max p and entropy apart; take each worst case over all points found.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> y, g = model(x).logits.argmax(dim=1), torch.Generator().manual_seed(0)
    >>> bounds = rood.analysis.rectification.claim_bounds(
    ...     model, x, y, rood.threat.Linf(1 / 255), rood.attacks.PGD(steps=3), g
    ... )
    >>> bounds.msp_found >= bounds.msp_bound
    True
    """
    goals = (
        misclassify(model, y),
        Goal(lambda v: margin(model(v).logits)),
        Goal(lambda v: log_entropy(model(v).logits)),
    )
    found = [x, *(attack(goal, x, threat, generator) for goal in goals)]
    with torch.no_grad():
        logits = torch.stack([model(v).logits.double() for v in found])  # (points, b, k)
        log_p = logits.log_softmax(dim=2)
        loss = -log_p.gather(2, y.expand(len(found), -1)[..., None]).squeeze(2)
        entropy = -(log_p.exp() * log_p).sum(dim=2)
        worst = loss.amax(dim=0).mean().item()
        return Bounds(
            worst_loss=worst,
            msp_found=log_p.amax(dim=2).exp().amin(dim=0).mean().item(),
            msp_bound=math.exp(-worst),
            entropy_found=entropy.amax(dim=0).mean().item(),
            entropy_bound=entropy_at_most(math.exp(-worst), model.classes),
        )


def entropy_at_most(q: float, classes: int) -> float:
    """phi(q): the largest entropy of a distribution that gives one class probability q (Fano)."""
    if q <= 1 / classes:
        return math.log(classes)
    rest = 1 - q
    binary = -(q * math.log(q) + (rest * math.log(rest) if rest > 0 else 0.0))
    return binary + rest * math.log(classes - 1)
