"""LIANG's detectors, the codes that are matched, and the attacked images its experiments share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from rood.analysis.matching import (
    Encoder,
    Matched,
    attack_pairs,
    checkerboard_starts,
    image_starts,
    noise_starts,
    spiral_starts,
)
from rood.attacks.base import Attack, value_and_gradient
from rood.attacks.feature_match import FeatureMatch
from rood.data.base import Shape
from rood.detectors import fit_all
from rood.detectors.base import Detector
from rood.errors import CapabilityError, NotFittedError
from rood.metrics import Interval, auroc, summary, wilson
from rood.models.model import Model
from rood.shapes import Images, Scores
from rood.threat import L2
from rood_papers.framework.adaptive import lowered
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.intervals import known, median
from rood_papers.liang.scores import CODES, SCORES, names_of

LARGE = 100  # pixels: beyond that fewer images
AT_ONCE = 50  # images whose slopes are looked at


@dataclass(frozen=True)
class Case:
    """One attack: on which score, whose code is taken, from where, and how far."""

    world: str  # in-distribution images: "cifar10" are cifar10/fit and cifar10/test
    roles: tuple[str, ...]  # networks: "cifar10/ce"
    score: str  # in SCORES
    code: str  # in CODES
    start: str = "noise"
    eps: float = 10.0  # L2, in pixel units
    steps: int = 1000  # the paper's
    most: int = 1000  # of these, at small: the rows `last_fall` tell whether that was enough


@dataclass(frozen=True, eq=False)
class Ready:
    """A fitted score with the pairs to attack, and their scores before."""

    detector: Detector
    encoder: Encoder
    inside: Images
    starts: Images
    clean_in: Scores
    clean_out: Scores
    network: str

    @property
    def alike(self) -> bool:
        """Whether all pairs start from one image, so that an attack without a target is one."""
        return bool((self.starts == self.starts[:1]).all())

    def ranked(self, outside: Scores, *, paired: bool = False) -> tuple[Interval, int]:
        """The AUROC beside OOD images with these scores, and of how many it is.

        paired: the images have targets of their own, and differ even where their starts do not.
        """
        if self.alike and not paired:
            one = auroc(inside=self.clean_in, outside=outside[:1])
            return wilson(one, len(self.clean_in)), 1
        return summary(self.clean_in, outside, resamples=1)["auroc"], len(outside)


def ready(context: Context, case: Case) -> Ready:
    """The score of a case, fitted, and its images."""
    plain = replace(case, eps=0, steps=0, most=0)
    return context.remember(("liang", plain), lambda: _ready(context, plain))


def matched(context: Context, case: Case, attack: Attack | None = None) -> Matched:
    """Images with the codes of others; by the authors' attack as coded where none is given.

    Scores whose code is the same share them.
    """
    s = ready(context, case)
    code = names_of(case.score, case.code)
    rule = attack or FeatureMatch.liang(steps=_steps(context, case))
    key = (case.world, case.roles, code, case.start, case.eps, rule)
    return context.remember(
        ("liang", "matched", *key),
        lambda: attack_pairs(
            s.encoder, s.inside, s.starts, rule, L2(case.eps), seed=context.seed, batch=1000
        ),
    )


def code_error(found: Matched, cell: Cell, network: str) -> Cell:
    """The cell with the error of the median image's code, or with why it has none."""
    n = len(found.mape)
    middle = known(median(found.mape))
    if middle is None:
        return cell.not_run("codes of 0 have no relative error")
    return cell.found(middle, n, n, network=network)


def direct(context: Context, case: Case) -> Scores:
    """The scores after our suite, which lowers the very score and matches nothing."""

    def make() -> Scores:
        s = ready(context, case)
        starts = s.starts[:1] if s.alike else s.starts
        found = lowered(context, s.detector, starts, s.clean_in, L2(case.eps), "liang")
        return scored(s.detector, found)

    return context.remember(("liang", "standard", case), make)


def stuck(context: Context, case: Case) -> float:
    """The share of starts at which the score has no slope, where no attack by gradients begins."""
    s = ready(context, case)
    steepest = []
    for part in s.starts[: context.size.standard].split(AT_ONCE):
        try:
            _, slope = value_and_gradient(s.detector.score, part)
        except CapabilityError:  # the score is cut off from the pixels
            return 1.0
        steepest.append(slope.flatten(1).abs().amax(dim=1))
    return (torch.cat(steepest) == 0).double().mean().item()


def many(context: Context, shape: Shape) -> int:
    """How many pairs."""
    few = shape[1] >= LARGE
    if context.size.name == "tiny":
        return 4 if few else 8
    return 64 if few else 200


@torch.no_grad()
def scored(detector: Detector, x: Images) -> Scores:
    """The scores on the CPU."""
    return torch.cat([detector.score(b) for b in x.split(250)]).cpu()


def test_set(context: Context, world: str) -> str:
    """The name of a world's images to attack."""
    name = {"fashion": "fashion-mnist"}.get(world, world)
    return f"{name}/test" if context.has(f"{name}/test") else name


def _steps(context: Context, case: Case) -> int:
    if context.size.name == "paper":
        return case.steps
    return min(context.size.steps(case.steps), case.most)


def _ready(context: Context, case: Case) -> Ready:
    networks = [context.network(role) for role in case.roles]
    models = [n.model for n in networks]
    shape = networks[0].shape
    inside = context.pixels(test_set(context, case.world), shape=shape, limit=many(context, shape))
    detector = _fitted(context, case, models, inside[:2])
    encoder = CODES[case.code](detector, models, inside[:2])
    starts = STARTS[case.start](context, inside)
    clean_in, clean_out = (scored(detector, x) for x in (inside, starts))
    name = networks[0].name if len(networks) == 1 else f"{len(networks)} of {networks[0].name}"
    return Ready(detector, encoder, inside, starts, clean_in, clean_out, name)


def _fitted(context: Context, case: Case, models: Sequence[Model], x: Images) -> Detector:
    detector = SCORES[case.score](models, x)
    try:
        detector.check_fitted()
    except NotFittedError:
        name, (c, h, w) = f"{case.world}/fit", x.shape[1:]
        source = name if context.has(name) else test_set(context, case.world)
        fit_all(
            [detector], context.fit_images(source, shape=(c, h, w)).batches(250, context.device)
        )
    return detector


def _same_image(name: str) -> Callable[[Context, Images], Images]:
    """The middle one of a set for every pair."""

    def starts(context: Context, x_in: Images) -> Images:
        c, h, w = x_in.shape[1:]
        image = context.images(name, shape=(c, h, w), limit=3).pixels(context.device)[1]
        return image_starts(x_in, image)

    return starts


STARTS: dict[str, Callable[[Context, Images], Images]] = {
    "noise": lambda context, x_in: noise_starts(x_in, context.seed),
    "spiral": lambda context, x_in: spiral_starts(x_in),
    "checkerboard": lambda context, x_in: checkerboard_starts(x_in),
    "chestxray": _same_image("chestxray"),
    "lung-ct": _same_image("lung-ct"),
}


def first_of(context: Context, *roles: str) -> str:
    """The first role that a network can be had for; NotRun where there is none."""
    for role in roles:
        try:
            context.network(role)
        except NotRun:
            continue
        return role
    raise NotRun(f"no network {roles[0].replace('/', '-')}")
