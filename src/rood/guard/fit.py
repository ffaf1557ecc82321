"""A guard from words: what `rood fit` is told, and the guard it means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rood.data.base import ImageSet
from rood.errors import InputError
from rood.evaluation.manifest import full_precision, versions
from rood.evaluation.settings import FIT_BATCH, AuditSettings, prepare
from rood.guard.calibration import check_rate
from rood.guard.guard import Guard
from rood.metrics import Interval, wilson
from rood.models import checkpoint, zoo

NOISE = "procedural:noise"  # that a guard rejects it is the least to ask; needs no file


@dataclass(frozen=True)
class Fitted:
    """A guard, and the shares it rejects of images that it has not seen."""

    guard: Guard
    test: Interval  # in-distribution: false alarms
    n_test: int
    noise: Interval
    notes: tuple[str, ...]  # about the images, one sentence each


def fit(settings: AuditSettings, rate: float = 0.05) -> Fitted:
    """Load, fit and calibrate; images are divided as an audit divides them."""
    if len(settings.models) != 1 or len(settings.detectors) != 1 or settings.detectors == ("all",):
        raise InputError(
            f"expected one network and one detector in a guard, got {', '.join(settings.models)} "
            f"and {', '.join(settings.detectors)}"
        )
    check_rate(rate)  # before what takes long
    wanted = replace(settings, outside={"noise": NOISE}, threats=(), limit=None)
    plan, about = prepare(wanted)
    (name,), (detector_name,) = plan.detectors, settings.detectors
    detector = plan.detectors[name][detector_name]
    told = {"network": name, "detector": detector_name, **about, "versions": versions()}
    guard = Guard.calibrated(
        detector,
        plan.calibrate.batches(FIT_BATCH, detector.model.mean.device),
        rate=rate,
        classes=_class_names(settings.models[0], detector.model.classes, plan.calibrate),
        about=told,
    )
    with full_precision():
        test, noise = (_rejected(guard, images) for images in (plan.inside, plan.outside["noise"]))
    return Fitted(guard, test, len(plan.inside), noise, plan.calibrate.notes)


def _class_names(model: str, classes: int, images: ImageSet) -> Sequence[str]:
    """From the network's card or else from the images; none where they do not fit."""
    names: Sequence[str] = images.classes
    if model in zoo.names():
        names = zoo.card(model)["classes"]
    elif model.endswith(".safetensors"):
        names = checkpoint.read_card(model)["classes"]
    return names if len(names) == classes else ()


def _rejected(guard: Guard, images: ImageSet) -> Interval:
    kept = sum(
        int(guard(x.to(guard.model.mean)).accept.sum()) for x, _ in images.batches(FIT_BATCH)
    )
    return wilson(1 - kept / len(images), len(images))
