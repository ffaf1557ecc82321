"""Many detectors, one forward pass: in fitting and in scoring."""

from collections.abc import Iterable, Mapping

import torch

from rood.detectors.base import Detector, OutputDetector, check_images
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.shapes import Batches, Images, Scores


def fit_all(detectors: Iterable[Detector], batches: Batches) -> None:
    """Fit every detector, and the detectors inside wrapping ones, in one pass over the data."""
    detectors = list(detectors)
    learners: dict[Model, list[OutputDetector]] = {}
    for part in {id(m): m for d in detectors for m in d.modules()}.values():
        if isinstance(part, OutputDetector) and part.fitted_names:
            learners.setdefault(part.model, []).append(part)
    # what is learnt under the caller's inference_mode could never be differentiated through
    with torch.inference_mode(False), torch.no_grad():
        if learners:
            _fit_outputs(learners, batches)
        for d in detectors:
            for part in d.modules():
                if isinstance(part, Detector):
                    part.fit_images(batches)
    for d in detectors:
        d.check_fitted()


def _fit_outputs(learners: dict[Model, list[OutputDetector]], batches: Batches) -> None:
    for part in (p for parts in learners.values() for p in parts):
        for name in part.fitted_names:
            setattr(part, name, None)
    seen = 0
    for x, y in batches:
        if len(x) != len(y):
            raise InputError(f"expected one label an image, got {len(x)} images, {len(y)} labels")
        for model, parts in learners.items():
            check_images(x, model)
            out = model(x)
            for part in parts:
                if seen == 0:
                    part.start()  # not before: the first images tell the model which its head is
                part.see(out, y)
        seen += len(x)
    if seen == 0:
        raise InputError("expected training images to fit on, got none")
    for part in (p for parts in learners.values() for p in parts):
        part.finish()


def score_all(detectors: Mapping[str, Detector], x: Images) -> dict[str, Scores]:
    """The score of every detector on x; all that are formulas of the outputs share a pass."""
    outputs: dict[Model, Outputs] = {}
    scores: dict[str, Scores] = {}
    for name, d in detectors.items():
        d.check_fitted()
        check_images(x, d.model)
        if not isinstance(d, OutputDetector):
            scores[name] = d.score_images(x)
            continue
        if d.model not in outputs:
            outputs[d.model] = d.model(x)
        scores[name] = d.score_outputs(outputs[d.model]).to(x.dtype)
    return scores
