"""Bounds of a detector's score on everything that a threat allows."""

import copy
from typing import Literal, get_args

import torch
from torch import Tensor

from rood.certify import alpha, backward
from rood.certify.forward import Forward, intervals
from rood.certify.graph import Operations, trace
from rood.certify.region import Region
from rood.detectors.base import Detector, OutputBox, OutputDetector, check_images
from rood.errors import InputError
from rood.models.model import Model
from rood.numerics.box import Box
from rood.shapes import Images
from rood.threat import Threat

Method = Literal["ibp", "crown-ibp", "crown", "alpha"]
METHODS: tuple[Method, ...] = get_args(Method)
# images; with one, no row of coefficients needs to look up its own lines
AT_ONCE: dict[Method, int] = {"ibp": 64, "crown-ibp": 16, "crown": 1, "alpha": 1}
# of score and logits: what a forward pass in float32 may be off from exact arithmetic
FLOAT32 = 2.0**-17
FLOAT64 = 1e-12  # of a score: rounding of the detector's formula, in float64


class Certifier:
    """Bounds of a detector's score near images.

    Networks and detector are copied in float64. Every rounding of the bounds themselves is covered
    (`rood.certify.layers.base`). The scores of a network in float32 differ from exact arithmetic by
    rounding too: for those the bounds are wider by 2^-17 of the score and the logits.
    """

    def __init__(self, detector: Detector, threat: Threat, method: Method = "crown") -> None:
        if method not in METHODS:
            raise InputError(f"expected a method among {', '.join(METHODS)}, got {method!r}")
        detector.check_fitted()
        with torch.inference_mode(False):
            self.exact = copy.deepcopy(detector).double().requires_grad_(False)
        self.threat, self.method = threat, method
        self._given = detector
        self._graphs: dict[tuple[int, tuple[int, ...]], Operations] = {}

    @torch.no_grad()
    def __call__(self, x: Images) -> Box:
        """Bounds of the score of every allowed image around each of x, in float64."""
        check_images(x, self._given.model)
        if len(x) == 0:
            return Box(x.new_zeros(0).double(), x.new_zeros(0).double())
        parts = [self._around(self.exact, some) for some in x.split(AT_ONCE[self.method])]
        low, high = (torch.cat(ends) for ends in zip(*parts, strict=True))
        return _numbers(Box(low, high))

    def _around(self, detector: Detector, x: Images) -> Box:
        if not isinstance(detector, OutputDetector):
            return detector.bounds_around(x, self._around)
        if not detector.bounded:
            raise detector.no_bounds()
        out = self._outputs(detector, x)
        found = detector.bounds_from(out)
        logits = out.logits.size.amax(dim=1)
        relative = FLOAT32 if x.dtype == torch.float32 else FLOAT64
        return found.widened(relative * (logits + found.size))

    def _outputs(self, detector: OutputDetector, x: Images) -> OutputBox:
        """Bounds of what the detector reads, and interval bounds of the rest."""
        graph = self._graph(detector.model, x)
        region = Region.around(x, self.threat, torch.float64)
        slow = self.method in ("crown", "alpha")
        found = backward.crown(graph, region) if slow else intervals(graph, region)
        rows = detector.forms()
        features, head = found.boxes[graph.features], graph.head
        out = OutputBox(
            found.boxes[graph.logits],
            features,
            None if head is None else found.boxes[head],
            None if rows is None else features.linear(rows),
        )
        if self.method == "ibp":
            return out
        places = {"logits": graph.logits, "features": graph.features, "forms": graph.features}
        places |= {} if head is None else {"head": head}
        for part in detector.bounded:
            if (known := getattr(out, part)) is not None:
                given = rows if part == "forms" else None
                tight = self._tight(found, places[part], given)
                out = out._replace(**{part: known.within(tight.reshaped(known.low))})
        return out

    def _tight(self, found: Forward, place: int, rows: Tensor | None) -> Box:
        """Bounds by a backward pass of some linear functions of a node; None: of every entry."""
        shape, like = found.graph.nodes[place].shape, found.region.image
        images = len(like)
        rows = torch.eye(torch.Size(shape).numel()).to(like) if rows is None else rows
        a = rows.repeat(images, 1).view(-1, *shape)
        owner = torch.arange(images, device=like.device).repeat_interleave(len(rows))
        if self.method == "alpha":
            copies = len(found.graph.nodes)
            return backward.both_ends(found, place, a, owner, alpha.least, copies)
        return backward.both_ends(found, place, a, owner)

    def _graph(self, model: Model, x: Images) -> Operations:
        key = id(model), tuple(x.shape[1:])
        if key not in self._graphs:
            self._graphs[key] = trace(model, key[1])
        return self._graphs[key]


def bounds(detector: Detector, x: Images, threat: Threat, method: Method = "crown") -> Box:
    """Lower and upper bounds of a detector's score on everything that a threat allows.

    No attack can get past them. `crown` is the method to use; `alpha` is tighter and takes twenty
    times as long; `crown-ibp` and `ibp` are fast, and loose on networks that were not trained for
    them.

    Parameters
    ----------
    detector
        A fitted detector that offers bounds, on a network of layers that `rood.certify.layers`
        covers.
    x
        Images in [0, 1], NCHW.
    threat
        `Linf` or `L2`; within the pixel box.
    method
        "ibp" (interval bounds), "crown-ibp", "crown" or "alpha".

    Returns
    -------
    Box
        `low` and `high`, (b,) each, in float64.

    Raises
    ------
    CapabilityError
        Where the detector has no bounds, or for a layer that is not covered.

    Examples
    --------
    >>> import rood, torch
    >>> from rood.certify import bounds
    >>> from rood.detectors import MSP
    >>> from rood.threat import Linf
    >>> msp = MSP(rood.zoo.load("digits-aloe"))
    >>> x = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> low, high = bounds(msp, x, Linf(0.01), "crown-ibp")
    >>> bool(((low <= msp.score(x)) & (msp.score(x) <= high)).all())
    True
    """
    return Certifier(detector, threat, method)(x)


def _numbers(found: Box) -> Box:
    """Where arithmetic overflowed nothing is known."""
    low, high = found
    return Box(low.nan_to_num(nan=-torch.inf), high.nan_to_num(nan=torch.inf))
