"""Which detectors a network and its images can serve, and a sentence about those they cannot."""

from collections.abc import Mapping

import torch

from rood import detectors
from rood.data.base import ImageSet
from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError, RoodError
from rood.models.wrap import without_features


def needs_labels(detector: Detector) -> bool:
    """Whether it, or a detector inside it, learns from the classes of images."""
    return any(d.needs_labels for d in detector.modules() if isinstance(d, Detector))


def without_labels(
    found: Mapping[str, Detector], fit: ImageSet
) -> tuple[dict[str, Detector], tuple[str, ...]]:
    """Those that do without labels, where the images have none; and a sentence about the others."""
    if fit.labels is not None and bool((fit.labels >= 0).all()):
        return dict(found), ()
    dropped = [n for n, d in found.items() if needs_labels(d)]
    if len(dropped) == len(found):
        raise InputError(
            f"expected labelled images to fit {', '.join(dropped)}, got none in {fit.name!r}: "
            "put them in one folder a class, or name such a folder with --train"
        )
    kept = {n: d for n, d in found.items() if n not in dropped}
    said = f"{', '.join(dropped)}: need labels, which {fit.name!r} has not for all its images"
    return kept, (said,) if dropped else ()


def without_classes(
    found: Mapping[str, Detector], fit: ImageSet, classes: int
) -> tuple[dict[str, Detector], tuple[str, ...]]:
    """Those that do without images of some classes, where these are lacking; and a sentence."""
    there = set() if fit.labels is None else set(fit.labels[fit.labels >= 0].tolist())
    lacking = sorted(set(range(classes)) - there)
    if not there or not lacking:
        return dict(found), ()
    dropped = [n for n, d in found.items() if needs_labels(d) and not _fits_on_few(d, fit)]
    if len(dropped) == len(found):
        raise InputError(
            f"expected training images of all {classes} classes to fit {', '.join(dropped)}, got "
            f"none of class {_few(lacking)} in {fit.name!r}: give some, or other detectors"
        )
    kept = {n: d for n, d in found.items() if n not in dropped}
    names = ", ".join(dropped)
    got = f"{fit.name!r} has {len(there)} of them"
    said = f"{names}: need images of all {classes} classes, and {got}"
    return kept, (said,) if dropped else ()


def _few(classes: list[int]) -> str:
    more = f" and {len(classes) - 3} more" if len(classes) > 3 else ""
    return ", ".join(map(str, classes[:3])) + more


def _fits_on_few(detector: Detector, fit: ImageSet) -> bool:
    """Two images show nearly no class: whoever learns class by class refuses them."""
    few = fit.take(torch.arange(min(len(fit), 2)))
    try:
        detectors.fit_all([detector], few.batches(2, detector.model.mean.device))
    except InputError:
        return False
    return True


def of_logits(
    found: Mapping[str, Detector], fit: ImageSet, model_name: str
) -> tuple[dict[str, Detector], tuple[str, ...]]:
    """Those that read nothing but logits, found by letting them try; a sentence about the rest."""
    kept, dropped = {}, []
    for name, detector in found.items():
        if _reads_features(detector, fit):
            dropped.append(name)
        else:
            kept[name] = detector
    if not kept:
        raise CapabilityError(
            f"expected detectors of the logits, which are all that {model_name} gives, got "
            f"{', '.join(dropped)}, which read features: take msp, energy, entropy, gen, odin, ..."
        )
    said = f"{', '.join(dropped)}: need features, and {model_name} gives logits alone"
    return kept, (said,) if dropped else ()


def _reads_features(detector: Detector, fit: ImageSet) -> bool:
    device = detector.model.mean.device
    few = fit.take(torch.arange(min(len(fit), 64)))
    try:
        with without_features(detector.model), torch.no_grad():
            detectors.fit_all([detector], few.batches(64, device))
            detector.score(few.take(torch.arange(1)).pixels(device))
    except CapabilityError:
        return True
    except RoodError:
        return False  # too few images, a class without any: the fit itself will say so
    return False
