"""Certificates of an audit: which detectors have bounds, the bounds, and what they must hold."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rood.certify import Certifier, Method, radius
from rood.certify.classes import certain
from rood.certify.sandwich import HALVINGS
from rood.data.base import ImageSet, spaced
from rood.detectors.base import Detector
from rood.errors import BoundError, CapabilityError
from rood.evaluation.batching import in_parts
from rood.evaluation.plan import Plan
from rood.evaluation.rows import CLEAN, Arrays, Evidence
from rood.evaluation.steps import Tick
from rood.models.model import Model
from rood.threat import Threat

AT_ONCE = 16  # images of a task: what a kill may cost
RADII = 8  # images of a set, evenly spaced, whose radius is searched
# forward passes of one image that its bounds take, about
PASSES: dict[Method, float] = {"ibp": 20.0, "crown-ibp": 60.0, "crown": 1000.0, "alpha": 20_000.0}


def without_bounds(plan: Plan) -> dict[tuple[str, str], str]:
    """Why a network ("" as its detector) or a detector has no bounds, tried on one image."""
    found: dict[tuple[str, str], str] = {}
    threat, x = plan.certifiable()[0], plan.inside.take(torch.tensor([0])).pixels()
    for name, detectors in plan.detectors.items():
        here = x.to((model := plan.model(name)).mean)
        try:
            certain(model, here, torch.zeros(1).long(), threat, "ibp")
        except CapabilityError as e:
            found |= {(name, d): str(e) for d in ("", *detectors)}
            continue
        for d, detector in detectors.items():
            try:
                Certifier(detector, threat, "ibp")(here)
            except CapabilityError as e:
                found[name, d] = str(e)
    return found


def sentences(plan: Plan, missing: Mapping[tuple[str, str], str]) -> list[str]:
    """What is not certified and why, a sentence for each network, detector and kind of budget."""
    others = [str(t) for t in plan.ordered_threats() if t not in plan.certifiable()]
    other = [f"not certified: {', '.join(others)}: there are bounds for linf and l2 budgets only"]
    networks = {model for model, detector in missing if not detector}
    return (other if others else []) + [
        f"not certified: {detector or 'all'} on {model}: {why}"
        for (model, detector), why in missing.items()
        if not detector or model not in networks
    ]


def score_bounds(
    detector: Detector,
    images: ImageSet,
    threat: Threat,
    method: Method,
    *,
    start: int,
    stop: int,
    tick: Tick | None = None,
) -> Arrays:
    """`low` and `high` of some images, in float64."""
    certifier = Certifier(detector, threat, method)

    def part(first: int, end: int) -> Arrays:
        x = images.take(torch.arange(first, end)).pixels().to(detector.model.mean)
        low, high = certifier(x)
        _told(tick, method, end - start)
        return {"low": low.cpu().numpy(), "high": high.cpu().numpy()}

    size = 1 if method in ("crown", "alpha") else stop - start  # to be heard of between images
    return _joined(in_parts(start, stop, size, part))


def radii(
    detector: Detector,
    images: ImageSet,
    largest: Threat,
    method: Method,
    threshold: float,
    *,
    start: int,
    stop: int,
    tick: Tick | None = None,
) -> Arrays:
    """`radius`: the eps up to which the decision on a few of the images is certain."""
    places = [i for i in spaced(len(images), RADII) if start <= i < stop]
    x = images.take(torch.tensor(places, dtype=torch.long)).pixels().to(detector.model.mean)
    found = radius(detector, x, threshold, largest, method=method)
    _told(tick, method, stop - start + HALVINGS * len(places))
    return {"radius": found.cpu().numpy()}


def bounds_of_radii(n: int, start: int, stop: int) -> int:
    """How many more bounds the search for radii takes at the most, for some images."""
    return HALVINGS * sum(start <= i < stop for i in spaced(n, RADII))


def certain_classes(
    model: Model,
    images: ImageSet,
    threat: Threat,
    method: Method,
    *,
    start: int,
    stop: int,
    tick: Tick | None = None,
) -> Arrays:
    """`class`: that of the label, where nothing within the threat is given another; else -1."""
    labels = torch.from_numpy(images.label_numbers())

    def part(first: int, end: int) -> Arrays:
        x = images.take(torch.arange(first, end)).pixels().to(model.mean)
        right = certain(model, x, labels[first:end], threat, method)
        _told(tick, method, end - start)
        return {"class": np.where(right.cpu().numpy(), labels[first:end].numpy(), -1)}

    return _joined(in_parts(start, stop, stop - start, part))


def expect_sandwich(e: Evidence, model: str, detector: str) -> None:
    """Refuse scores outside the bounds of their images, clean or found by an attack (P11)."""
    for (dataset, threat), bounds in e.bounds.items():
        found = {CLEAN: e.clean[dataset]} | {
            f"{e.attack} {other}": arrays
            for (name, other), arrays in e.attacked.items()
            if name == dataset and other.norm == threat.norm and other.eps <= threat.eps
        }
        for by, arrays in found.items():
            where = f"{detector!r} on {model!r} and image {{}} of {dataset!r}"
            _expect_within(bounds, arrays["scores"], where, by, f"{e.method} within {threat}")


def _expect_within(
    bounds: Arrays, scores: NDArray[Any], where: str, by: str, certificate: str
) -> None:
    ends = {"low": ("below", scores < bounds["low"]), "high": ("above", scores > bounds["high"])}
    for end, (word, outside) in ends.items():
        if outside.any():
            i = int(outside.argmax())
            raise BoundError(
                f"expected no score of {where.format(i)} {word} {bounds[end][i]:.9g}, as certified "
                f"by {certificate}, got {scores[i]:.9g} from {by}: the certificate is wrong, "
                "please report it and trust none of its numbers"
            )


def _told(tick: Tick | None, method: Method, images: int) -> None:
    if tick is not None:
        tick(images * PASSES[method])


def _joined(parts: Iterable[Arrays]) -> Arrays:
    each = list(parts)
    return {k: np.concatenate([p[k] for p in each]) for k in each[0]}
