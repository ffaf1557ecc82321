"""FORT's detectors on our networks, and the trajectories that its tables and figures share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rood.analysis.trajectory import Direction, Trajectory, trajectory
from rood.data.base import ImageSet, Shape
from rood.detectors import CLIP, Detector, Ensemble, LowResolution, fit_all, registry
from rood.models.sources.clip import zero_shot
from rood.shapes import Images, Labels, Scores
from rood.threat import Linf
from rood_papers.framework.bench import System
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.paper import read

FILE = read("fort")
DISTANCES = ("Mahalanobis", "Relative Mahalanobis")
LEVEL = 1 / 255
NEARER = LEVEL / 4  # where weaker networks than the paper's are not at the floor yet
AT_NEARER = ", at 0.25/255"
RECORDS = 30
BATCH = 500  # images that pass a network together


@dataclass(frozen=True)
class Case:
    """A score on networks, the images of both sides, and the pixels that the attacker has."""

    world: str  # of the file: which images are inside
    method: str
    outside: str  # set of OOD images
    roles: tuple[str, ...]  # networks, of several the mean score; none: CLIP
    small: bool = False  # the attacker has the pixels of the image before it is enlarged

    @property
    def column(self) -> str:
        """What is outside, and inside where that is not the paper's CIFAR-100."""
        outside = self.outside.partition("/")[0]
        paper = self.world == "cifar100"
        return outside if paper or self.world == outside else f"{outside}, inside {self.world}"


def case_of(line: Mapping[str, Any]) -> Case:
    """The case of a line; its network is the world's first where it names none."""
    world = FILE["worlds"][line["world"]]
    networks = world["networks"]
    known = line["method"] in FILE["methods"]
    roles = networks[line.get("network", next(iter(networks)))].split(" + ") if known else ()
    outside = line.get("outside", world["images"]["outside"])
    return Case(line["world"], line["method"], outside, tuple(roles), line.get("small", False))


def ready(context: Context, case: Case) -> System:
    """The detector of a case, fitted, and its images."""
    return context.remember(("fort", case), lambda: _ready(context, case))


def walk(
    context: Context,
    case: Case,
    *,
    direction: Direction = "look_in",
    step: float = 3e-4,
    sign_of_zero: int = 0,
    one: bool = False,  # a single image, the one whose score is the median of its side
) -> Trajectory:
    """Unprojected steps from the images of one side."""

    def make() -> Trajectory:
        s = ready(context, case)
        records = 15 if context.size.name == "tiny" and not one else RECORDS  # past 1/255 as well
        return trajectory(
            s.detector,
            _started(s, direction, one),
            direction=direction,
            step=step,
            records=records,
            sign_of_zero=sign_of_zero,
        )

    return context.remember(("fort", case, direction, step, sign_of_zero, one), make)


def arrived(way: Trajectory) -> Trajectory:
    """The images that moved by 1/255 or more: only these have a score at 1/255."""
    there = way.linf.amax(dim=0) >= LEVEL
    if not there.any():
        raise NotRun("no image ever moved by 1/255")
    parts = {n: getattr(way, n)[:, there] for n in ("scores", "l2", "linf", "left_box")}
    return replace(way, **parts)


def worst(context: Context, case: Case) -> Scores:
    """The scores of OOD images after our suite, at the paper's distance."""

    attack = lambda: ready(context, case).lowered(context, Linf(LEVEL), "fort").scores.cpu()
    return context.remember(("fort", "standard", case), attack)


def attacked(context: Context, world: str) -> int:
    """How many images are moved."""
    return 16 if context.size.name == "tiny" else int(FILE["worlds"][world]["attacked"])


def _ready(context: Context, case: Case) -> System:
    names = FILE["worlds"][case.world]["images"]
    if case.roles:
        detector, shape, name = _of_networks(context, case, names["fit"])
    else:
        detector, shape, name = _of_clip(context, names["inside"], case.outside)
    few = 128 if context.size.name == "tiny" else None
    inside = context.pixels(names["inside"], limit=few)
    outside = context.pixels(case.outside, limit=attacked(context, case.world))
    if case.small:
        detector = LowResolution(detector, size=shape[1:])
    else:
        inside, outside = enlarged(inside, shape[1:]), enlarged(outside, shape[1:])
    return System.scored(detector, inside, outside, name)


def _of_networks(context: Context, case: Case, fit: str) -> tuple[Detector, Shape, str]:
    networks = [context.network(role) for role in case.roles]
    members = [_fitted(context, fit, role)[case.method] for role in case.roles]
    detector = members[0] if len(members) == 1 else Ensemble(members)
    return detector, networks[0].shape, " + ".join(n.name for n in networks)


def _fitted(context: Context, fit: str, role: str) -> dict[str, Detector]:
    def make() -> dict[str, Detector]:
        network = context.network(role)
        detectors = {m: registry.get(d)(network.model) for m, d in FILE["methods"].items()}
        images = context.all_fit_images(fit)
        fit_all(detectors.values(), _Enlarged(images, network.shape[1:], context.device))
        return detectors

    return context.remember(("fort", fit, role), make)


def _of_clip(context: Context, inside: str, outside: str) -> tuple[Detector, Shape, str]:
    """CLIP with the class names of both sides as its words, as `--model clip=hf:NAME` says."""
    if "clip" not in context.models:  # there is no stand-in for its training data
        raise NotRun("no data")
    spec = context.models["clip"].removeprefix("hf:")
    words = [context.images(name, limit=1).classes for name in (inside, outside)]
    model = zero_shot(spec, inside=words[0], outside=words[1]).to(context.device)
    side = int(model.net.size)  # type: ignore[arg-type]
    return CLIP(model, inside=len(words[0])), (3, side, side), Path(spec).name


def enlarged(x: Images, size: tuple[int, int]) -> Tensor:
    """Bilinear with half-pixel centres, as `LowResolution` does it."""
    if x.shape[-2:] == size:
        return x
    return interpolate(x, size, mode="bilinear", align_corners=False).clamp(0, 1)


@dataclass(frozen=True)
class _Enlarged:
    """Batches at the network's size, which can be read again."""

    images: ImageSet
    size: tuple[int, int]
    device: torch.device

    def __iter__(self) -> Iterator[tuple[Tensor, Labels]]:
        for x, y in self.images.batches(BATCH, self.device):
            yield enlarged(x, self.size), y


def _started(s: System, direction: Direction, one: bool) -> Images:
    x, scores = (s.outside, s.clean_out) if direction == "look_in" else (s.inside, s.clean_in)
    if one:
        middle = int(scores.argsort()[len(scores) // 2])
        return x[middle : middle + 1]
    return x[: len(s.outside)]
