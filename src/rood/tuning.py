"""Choose a detector's options on validation images, never on test images."""

import itertools
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from rood._files import write_whole
from rood._parsing import json_file
from rood.data.base import ImageSet
from rood.data.given import AnyImages, image_set
from rood.detectors import Detector, fit_all
from rood.errors import InputError
from rood.metrics import auroc, fpr_at_tpr_in
from rood.models.model import Model
from rood.seeds import generator

__all__ = [
    "GRIDS",
    "Trial",
    "noise",
    "trials",
    "tune",
]


def __dir__() -> list[str]:
    return __all__


Options = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]

# openood: the largest AUROC; aloe: the smallest share of OOD missed while 95 % of ID are kept
Rule = Literal["openood", "aloe"]

# the grids of the papers, in pixel units where they step in pixels
GRIDS: dict[str, Grid] = {
    name: {option: tuple(values) for option, values in grid.items()}
    for name, grid in tomllib.loads((files("rood") / "tuning.toml").read_text()).items()
}


@dataclass(frozen=True)
class Trial:
    """One point of a grid and its value; `best` is the best so far."""

    options: Options
    value: float  # AUROC, or the share missed
    best: "Trial | None"
    done: int
    total: int


def tune(
    make: Callable[..., Detector],
    model: Model,
    grid: Grid,
    *,
    train: AnyImages,
    inside: AnyImages,
    outside: AnyImages,
    rule: Rule = "openood",
    cache: Path | None = None,
    batch_size: int = 256,
) -> tuple[Detector, Options]:
    """Fit a detector at every point of a grid; the best one, fitted, and its options.

    Parameters
    ----------
    make : callable
        The detector's class or a named constructor: `make(model, **options)`.
    model : Model
    grid : mapping
        The values to try for each option; `GRIDS` holds those of the papers.
    train, inside, outside
        Images to fit on, and ID and OOD validation images, in any form that `rood.audit` takes. The
        test images must not be among them.
    rule : {"openood", "aloe"}
        The largest AUROC, or the smallest share of OOD missed where 95 % of ID are accepted.
    cache : Path, optional
        A JSON file; values found there are not computed again.
    batch_size : int

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> images = rood.ImageSet("noise", torch.rand(60, 1, 28, 28))
    >>> knn, options = rood.tuning.tune(
    ...     rood.detectors.KNN, model, {"k": (1, 5)}, train=images, inside=images,
    ...     outside=rood.tuning.noise((1, 28, 28), n=30),
    ... )
    >>> options["k"] in (1, 5)
    True
    """
    best: Trial | None = None
    train = image_set(train, "train")
    for trial in trials(
        make, model, grid, train=train, inside=inside, outside=outside, rule=rule, cache=cache,
        batch_size=batch_size,
    ):  # fmt: skip
        best = trial.best
    assert best is not None
    detector = make(model, **best.options)
    fit_all([detector], train.batches(batch_size, model.mean.device))
    return detector, best.options


def trials(
    make: Callable[..., Detector],
    model: Model,
    grid: Grid,
    *,
    train: AnyImages,
    inside: AnyImages,
    outside: AnyImages,
    rule: Rule = "openood",
    cache: Path | None = None,
    batch_size: int = 256,
) -> Iterator[Trial]:
    """Every point in turn: the first listed option varies fastest, the first best stays."""
    if rule not in get_args(Rule):
        raise InputError(f"expected a rule out of {', '.join(get_args(Rule))}, got {rule!r}")
    train, inside, outside = (
        image_set(images, name)
        for images, name in ((train, "train"), (inside, "inside"), (outside, "outside"))
    )
    points = [dict(reversed(p)) for p in itertools.product(*_axes(grid))]
    known = _Cache(cache, model, (train, inside, outside), rule)
    better: Callable[[float, float], bool] = (
        (lambda new, old: new > old) if rule == "openood" else (lambda new, old: new < old)
    )
    best: Trial | None = None
    for i, options in enumerate(points):
        detector = make(model, **options)
        # its settings too: two functions without a name may make different detectors
        key = json.dumps(
            [getattr(make, "__qualname__", str(make)), options, detector.settings()],
            sort_keys=True,
            default=str,
        )
        value = known.get(key)
        if value is None:
            fit_all([detector], train.batches(batch_size, model.mean.device))
            scores = [_scores(detector, images, batch_size) for images in (inside, outside)]
            measure = auroc if rule == "openood" else fpr_at_tpr_in
            value = measure(inside=scores[0], outside=scores[1])
            known.put(key, value)
        trial = Trial(options, value, best, i + 1, len(points))
        if best is None or better(value, best.value):
            best = trial
        yield Trial(options, value, best, i + 1, len(points))


def noise(shape: tuple[int, int, int], n: int = 1000, seed: int = 0) -> ImageSet:
    """n uniform and n Gaussian noise images (mean 1/2, sd 1, clipped): OOD without any OOD data.

    Examples
    --------
    >>> len(rood.tuning.noise((1, 28, 28), n=10))
    20
    """
    g = generator(seed, "validation noise")
    uniform = torch.rand(n, *shape, generator=g)
    gaussian = (0.5 + torch.randn(n, *shape, generator=g)).clamp(0, 1)
    return ImageSet("validation noise", torch.cat([uniform, gaussian]))


def _axes(grid: Grid) -> list[list[tuple[str, Any]]]:
    if not grid or not all(len(values) for values in grid.values()):
        raise InputError(f"expected a grid with values for every option, got {dict(grid)}")
    return [[(name, v) for v in values] for name, values in reversed(list(grid.items()))]


@torch.no_grad()
def _scores(detector: Detector, images: ImageSet, batch_size: int) -> torch.Tensor:
    batches = images.batches(batch_size, detector.model.mean.device)
    return torch.cat([detector.score(x).cpu() for x, _ in batches])


class _Cache:
    """Values on disk, by network, images, rule and options; a new network starts a new list."""

    def __init__(
        self, path: Path | None, model: Model, sets: Sequence[ImageSet], rule: Rule
    ) -> None:
        self.path = path
        self.key = ""
        self.values: dict[str, dict[str, float]] = {}
        if path is not None:
            self.key = " ".join([model.fingerprint(), *(s.fingerprint() for s in sets), rule])
            self.values = _read(path) if os.path.lexists(path) else {}

    def get(self, point: str) -> float | None:
        return self.values.get(self.key, {}).get(point)

    def put(self, point: str, value: float) -> None:
        self.values.setdefault(self.key, {})[point] = value
        if self.path is not None:
            write_whole(self.path, json.dumps(self.values, indent=1).encode())


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        found = json_file(path)
        return {str(k): {str(p): float(v) for p, v in part.items()} for k, part in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise InputError(f"expected tuned values in {path}, got something else: delete it") from e
