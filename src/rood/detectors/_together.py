"""Fit and score many detectors with one forward pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from rood.data.given import AnyBatches, batches_of
from rood.detectors.base import Detector, OutputDetector, check_images
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.models.taps import watching
from rood.seeds import row_keys
from rood.shapes import Batches, Images, Scores


def fit_all(detectors: Iterable[Detector], batches: AnyBatches) -> None:
    """Fit every detector, inner ones included, in one pass over the data.

    Detectors that are fitted on pixels (`fit_images`) take a separate pass. `batches` are pairs
    (x, y), or images in any form that `rood.audit` takes.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> detectors = [rood.detectors.KNN(model, k=5), rood.detectors.ViM(model)]
    >>> batches = [(torch.rand(60, 1, 28, 28), torch.zeros(60).long())]
    >>> rood.detectors.fit_all(detectors, batches)
    >>> detectors[0]
    KNN(k=5, fitted)
    """
    parts = list({id(p): p for d in detectors for p in _parts(d)}.values())  # inner ones first
    device = parts[0].model.mean.device if parts else torch.device("cpu")
    pairs = batches_of(batches, device)
    learners = [p for p in parts if isinstance(p, OutputDetector) and _learns(p)]
    # tensors made under the caller's inference_mode could not be differentiated through
    with torch.inference_mode(False), torch.no_grad():
        if learners:
            _fit_outputs(learners, pairs)
        for part in parts:
            part.fit_images(pairs)
    for part in parts:
        part.check_fitted()


def _parts(detector: Detector) -> Iterator[Detector]:
    """The detector and those inside it that are fitted on the same images, inner ones first."""
    if detector.same_pixels:
        for _, inner in detector.inner():
            yield from _parts(inner)
    yield detector


def _learns(part: OutputDetector) -> bool:
    """Whether it declares fitted values, or keeps what it learns elsewhere, in plain attributes."""
    steps = ("start", "see", "finish")
    own = any(getattr(type(part), n) is not getattr(OutputDetector, n) for n in steps)
    return own or bool(part.fitted_names)


def _fit_outputs(learners: Sequence[OutputDetector], batches: Batches) -> None:
    for part in learners:
        for name in part.fitted_names:
            setattr(part, name, None)
    seen = 0
    for x, y in batches:
        if len(x) != len(y):
            raise InputError(f"expected one label per image, got {len(x)} images, {len(y)} labels")
        for model, group in _by_model(learners).items():
            check_images(x, model)
            if seen == 0:
                for part in group:
                    part.choose_taps(x)
            keys = row_keys(x)
            for part, out in _shared_pass(model, group, x):
                if seen == 0:
                    part.start()  # not before: the first images show the model which is its head
                part.see(out._replace(keys=keys), y)
        seen += len(x)
    if seen == 0:
        raise InputError("expected training images to fit on, got none")
    for part in learners:
        part.finish()


def _by_model(parts: Iterable[OutputDetector]) -> dict[Model, list[OutputDetector]]:
    groups: dict[Model, list[OutputDetector]] = {}
    for part in parts:
        groups.setdefault(part.model, []).append(part)
    return groups


def _shared_pass(
    model: Model, parts: Sequence[OutputDetector], x: Images
) -> Iterator[tuple[OutputDetector, Outputs]]:
    """One forward pass, and for each detector the outputs it asked for."""
    taps = tuple(dict.fromkeys(t for p in parts for t in p.taps))
    maps: dict[str, tuple[Tensor, ...]] = {}
    model.confirm(x)  # a separate pass, which must not be recorded
    with watching(model.layers(taps)) as seen:
        out = model(x)
    for name, record in zip(taps, seen, strict=True):
        maps[name] = tuple(record.outputs)
    for part in parts:
        yield part, out._replace(maps=tuple(m for t in part.taps for m in maps[t]))


def score_all(detectors: Mapping[str, Detector], x: Images) -> dict[str, Scores]:
    """The scores of x by every detector; every `OutputDetector` shares one forward pass.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> detectors = {"msp": rood.detectors.MSP(model), "energy": rood.detectors.Energy(model)}
    >>> sorted(rood.detectors.score_all(detectors, torch.rand(2, 1, 28, 28)))
    ['energy', 'msp']
    """
    for d in detectors.values():
        d.check_fitted()
    for model in {d.model for d in detectors.values()}:  # once each: a check waits for the GPU
        check_images(x, model)
    found: dict[Detector, Scores] = {}
    for model, group in _by_model(
        d for d in detectors.values() if isinstance(d, OutputDetector)
    ).items():
        for part, out in _shared_pass(model, group, x):
            found[part] = part.score_outputs(out).to(x.dtype)
    return {n: found[d] if d in found else d.score_images(x) for n, d in detectors.items()}
