"""Attack every detector from both sides and write down what is left of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from rood.attacks.base import Attack
from rood.attacks.pgd import PGD
from rood.data.base import SPLIT_RULE, ImageSet, refuse_overlap, split
from rood.detectors.base import Detector
from rood.errors import InputError
from rood.evaluation.engines import Engine
from rood.evaluation.plan import Plan
from rood.evaluation.results import Results, Side
from rood.evaluation.rows import SIDES
from rood.evaluation.run import run
from rood.evaluation.store import said_plainly
from rood.models.model import Model
from rood.report import write_report
from rood.threat import Threat

AnyImages = ImageSet | Tensor | tuple[Tensor, Tensor]  # pixels in [0, 1]; labels second


def audit(
    model: Model,
    detectors: Mapping[str, Detector],  # fitted, by the name they get in the results
    *,
    inside: AnyImages,  # test images of the model's own world; with labels, accuracy is shown
    outside: Mapping[str, AnyImages],
    threats: Sequence[Threat],  # none: a clean audit
    out: str | Path,  # the same call on the same folder continues where it stopped
    calibrate: AnyImages | None = None,  # sets the threshold; None: a quarter of `inside`
    attack: Attack | None = None,
    sides: Sequence[Side] = SIDES,
    name: str = "model",
    seed: int = 0,
    batch_size: int | None = None,  # images at once; None: as memory allows
    engine: Engine | None = None,  # None: this process; `rood.evaluation.engines.ray.Ray`
) -> Results:
    """Score every detector clean and attacked, with intervals and verdicts; write the page too."""
    _check_model(model, detectors)
    test = _image_set(inside, "inside")
    about = {"split": {"rule": "given by the caller", "test": len(test)}}
    if calibrate is None:
        parts = split(test, "threshold", calibrate=0.25, test=0.75)
        calibrate, test = parts["calibrate"], parts["test"]
        about = {"split": {"rule": SPLIT_RULE, "calibrate": len(calibrate), "test": len(test)}}
    else:
        refuse_overlap(_image_set(calibrate, "calibrate"), test, "calibrate", "inside")
    plan = Plan(
        detectors={name: detectors},
        calibrate=_image_set(calibrate, "calibrate"),
        inside=test,
        outside={n: _image_set(x, n) for n, x in outside.items()},
        threats=threats,
        attack=attack or PGD(),
        sides=sides,
        seed=seed,
        batch_size=batch_size,
    )
    for _ in run(plan, Path(out), about, engine):
        pass
    with said_plainly(Path(out)):
        write_report(Path(out))
    return Results(Path(out))


def _check_model(model: Model, detectors: Mapping[str, Detector]) -> None:
    for name, detector in detectors.items():
        if detector.model is not model:
            raise InputError(f"expected detector {name!r} to be built on the model given")


def _image_set(images: AnyImages, name: str) -> ImageSet:
    if isinstance(images, ImageSet):
        return images
    x, y = images if isinstance(images, tuple) else (images, None)
    return ImageSet(name, x.detach().cpu(), None if y is None else y.detach().cpu())
