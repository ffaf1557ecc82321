"""What a certificate leaves of a detector: metrics that no attack gets below, and radii."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from rood import metrics
from rood.certify.bounding import Certifier, Method
from rood.detectors.base import Detector
from rood.errors import InputError
from rood.shapes import Images, Scores
from rood.threat import NORMS, Threat

AttackedSide = Literal["outside", "inside", "both"]
HALVINGS = 7


def certified(
    detector: Detector,
    inside: Images,
    outside: Float[Tensor, "o c h w"],
    threat: Threat,
    *,
    method: Method = "crown",
    threshold: float | None = None,
    seed: int = 0,
) -> dict[AttackedSide, dict[str, metrics.Interval]]:
    """Metrics that hold whatever an attacker does within a threat, with intervals over images.

    An attacked ID image counts with the upper bound of its score, an attacked OOD image with the
    lower one: every metric of `rood.metrics.summary` is then a bound of the attacked one.

    Parameters
    ----------
    detector
        A fitted detector that offers bounds.
    inside, outside
        ID and OOD images in [0, 1].
    threat
        What the attacker may do.
    method
        See `rood.certify.bounds`.
    threshold
        The deployed threshold; None: that of 95 % of the clean ID scores.
    seed
        Of the intervals' resampling.

    Returns
    -------
    dict
        By attacked side ("outside", "inside", "both") and metric: value, low and high.

    Examples
    --------
    >>> import rood, torch
    >>> from rood.certify import certified
    >>> from rood.detectors import MSP
    >>> from rood.threat import Linf
    >>> msp = MSP(rood.zoo.load("digits-aloe"))
    >>> x = torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> found = certified(msp, x[:20], x[20:].round(), Linf(1e-4), method="crown-ibp")
    >>> found["both"]["auroc"].value <= found["inside"]["auroc"].value
    True
    """
    certifier = Certifier(detector, threat, method)
    with torch.no_grad():
        clean_in, clean_out = _array(detector.score(inside)), _array(detector.score(outside))
    worst_in, worst_out = _array(certifier(inside).high), _array(certifier(outside).low)
    if threshold is None:
        threshold = metrics.threshold_at_tpr(clean_in)
    pairs: dict[AttackedSide, tuple[NDArray[np.float64], NDArray[np.float64]]] = {
        "outside": (clean_in, worst_out),
        "inside": (worst_in, clean_out),
        "both": (worst_in, worst_out),
    }
    return {
        side: {
            name: metrics.Interval(*found)
            for name, found in metrics.summary(s_in, s_out, threshold, seed=seed).items()
        }
        for side, (s_in, s_out) in pairs.items()
    }


def radius(
    detector: Detector,
    x: Images,
    threshold: float,
    largest: Threat,
    *,
    method: Method = "crown",
) -> Scores:
    """The eps up to which each image's decision is certain, by halving; at most `largest`.

    An image is accepted where its score is at most the threshold. Every eps returned was certified
    itself; 0 where not even the smallest one tried was.
    """
    if not largest.eps > 0:
        raise InputError(f"expected a largest eps above 0 to search below, got {largest.eps}")
    with torch.no_grad():
        accepted = detector.score(x) <= threshold
    certain = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for i in range(len(x)):
        low, high, tried = 0.0, largest.eps, largest.eps
        for _ in range(HALVINGS):
            found = Certifier(detector, NORMS[largest.norm](tried), method)(x[i : i + 1])
            holds = found.high <= threshold if bool(accepted[i]) else found.low > threshold
            low, high = (tried, high) if bool(holds) else (low, tried)
            if low == largest.eps:
                break
            tried = (low + high) / 2
        certain[i] = low
    return certain


def _array(scores: Tensor) -> NDArray[np.float64]:
    return scores.detach().double().cpu().numpy()
