"""From settings to a guard: fitted, calibrated, and tried on images it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass

from rood import data
from rood.data.base import ImageSet
from rood.errors import expect
from rood.evaluation.manifest import full_precision, versions
from rood.evaluation.prepare import FIT_BATCH, prepare
from rood.evaluation.settings import AuditSettings
from rood.guard.calibration import check_rate
from rood.guard.guard import Guard
from rood.metrics import Interval, wilson
from rood.models import checkpoint, zoo

NOISE = "procedural:noise"  # every guard should reject it


@dataclass(frozen=True)
class Fitted:
    """A guard, and the shares it rejects of images that it has not seen."""

    guard: Guard
    test: Interval  # in-distribution: false alarms
    n_test: int
    noise: Interval
    notes: tuple[str, ...]  # about the images, one sentence each


def fit_guard(settings: AuditSettings, rate: float = 0.05) -> Fitted:
    """Load, fit and calibrate; images are divided as in an audit."""
    given = settings.models, settings.detectors
    single = all(len(names) == 1 for names in given) and settings.detectors != ("all",)
    expect(single, "one network and one detector in a guard", *map(", ".join, given))
    check_rate(rate)  # before what takes long
    bench = prepare(settings)
    ((name, fitted),) = bench.detectors.items()
    ((detector_name, detector),) = fitted.items()
    told = {"network": name, "detector": detector_name, **bench.about, "versions": versions()}
    guard = Guard.calibrated(
        detector,
        bench.calibrate.batches(FIT_BATCH, detector.model.mean.device),
        rate=rate,
        classes=_class_names(settings.models[0], detector.model.classes, bench.calibrate),
        about=told,
    )
    noise = data.load(NOISE, shape=bench.inside.shape)
    with full_precision():
        rejected = [_rejected(guard, images) for images in (bench.inside, noise)]
    return Fitted(guard, rejected[0], len(bench.inside), rejected[1], bench.calibrate.notes)


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
