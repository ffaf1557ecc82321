"""LIANG's systems: a detector, the code of it that is matched, its networks, and its starts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from rood.analysis.matching import (
    Encoder,
    Matched,
    attack_pairs,
    checkerboard_starts,
    ensemble_logits,
    features,
    image_starts,
    layers,
    logits,
    noise_starts,
    preprocessed_logits,
    score_of,
    spiral_starts,
)
from rood.attacks import FeatureMatch
from rood.attacks.base import Attack, value_and_gradient
from rood.data.base import Shape
from rood.detectors import ODIN, Detector, fit_all, registry
from rood.errors import CapabilityError, NotFittedError
from rood.metrics import Interval, auroc, summary, wilson
from rood.models.model import Model
from rood.shapes import Images, Scores
from rood.threat import L2
from rood_papers.framework.bench import System
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.intervals import known, median
from rood_papers.framework.paper import combined, read

FILE = read("liang")
SCORES = {line.pop("name"): line for entry in FILE["scores"] for line in combined(entry)}
SMALL = ("mnist", "fashion", "digits")  # images of 784 numbers: half of the paper's distance
LARGE = 100  # pixels: beyond that fewer images
AT_ONCE = 50  # images whose gradients are looked at together


@dataclass(frozen=True)
class Case:
    """One attack: on which score, which code is matched, from which start, and how far."""

    world: str  # ID images: "cifar10" are cifar10/fit and cifar10/test
    roles: tuple[str, ...]  # networks: "cifar10/ce"
    score: str  # in SCORES
    code: str  # in CODES
    start: str = "noise"  # in STARTS, or a set of images
    eps: float = 10.0  # L2, in pixel units
    steps: int = 1000  # the paper's
    most: int = 1000  # steps at small: the rows `last_fall` tell whether that was enough


def case_of(context: Context, line: Mapping[str, Any]) -> Case:
    """The case of a line; its network is the first of "a | b" that there is, or all of "a + b"."""
    choices = line["network"].split(" | ")
    # where there is none, the first: its part then says "not run"
    network = next((c for c in choices if len(choices) == 1 or context.has_network(c)), choices[0])
    world = line.get("world") or network.partition("/")[0]
    given = {f.name: line[f.name] for f in fields(Case) if f.name in line}
    near = {"eps": 5.0 if world in SMALL else 10.0}
    return Case(**near | given | {"world": world, "roles": tuple(network.split(" + "))})


@dataclass(frozen=True, eq=False)
class Pairs(System):
    """A system whose OOD images are starts, one for each ID image, and the code to match."""

    encoder: Encoder

    @property
    def alike(self) -> bool:
        """Whether all pairs start from one image, so that an attack without a target is one."""
        return bool((self.outside == self.outside[:1]).all())

    def ranked(self, outside: Scores, *, paired: bool = False) -> tuple[Interval, int]:
        """The AUROC beside OOD images with these scores, and the number of these images.

        paired: the images have targets of their own, and differ even where their starts do not.
        """
        if self.alike and not paired:
            one = auroc(inside=self.clean_in, outside=outside[:1])
            return wilson(one, len(self.clean_in)), 1
        return summary(self.clean_in, outside, resamples=1)["auroc"], len(outside)


def ready(context: Context, case: Case) -> Pairs:
    """The score of a case, fitted, and its images."""
    plain = replace(case, eps=0, steps=0, most=0)
    return context.remember(("liang", plain), lambda: _ready(context, plain))


def matched(context: Context, case: Case, attack: Attack | None = None) -> Matched:
    """Images with the codes of others, by the authors' attack as coded where none is given.

    Scores whose code is the same share them.
    """
    s = ready(context, case)
    rule = attack or FeatureMatch.liang(steps=steps_of(context, case))
    key = (case.world, case.roles, shared_code(case), case.start, case.eps, rule)
    return context.remember(
        ("liang", "matched", *key),
        lambda: attack_pairs(
            s.encoder, s.inside, s.outside, rule, L2(case.eps), seed=context.seed, batch=1000
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
    """The scores after our suite, which lowers the score itself and matches nothing."""

    def make() -> Scores:
        s = ready(context, case)
        one = replace(s, outside=s.outside[:1]) if s.alike else s
        return one.lowered(context, L2(case.eps), "liang").scores.cpu()

    return context.remember(("liang", "standard", case), make)


def stuck(context: Context, case: Case) -> float:
    """The share of starts at which the score has no gradient, where no attack by it begins."""
    s = ready(context, case)
    steepest = []
    for part in s.outside[: context.size.standard].split(AT_ONCE):
        try:
            _, slope = value_and_gradient(s.detector.score, part)
        except CapabilityError:  # the score is cut off from the pixels
            return 1.0
        steepest.append(slope.flatten(1).abs().amax(dim=1))
    return (torch.cat(steepest) == 0).double().mean().item()


@torch.no_grad()
def scored(detector: Detector, x: Images) -> Scores:
    """The scores on the CPU."""
    return torch.cat([detector.score(b) for b in x.split(250)]).cpu()


def test_set(context: Context, world: str) -> str:
    """The name of a world's images to attack."""
    name = {"fashion": "fashion-mnist"}.get(world, world)
    return f"{name}/test" if context.has(f"{name}/test") else name


def steps_of(context: Context, case: Case) -> int:
    """As many steps as the size allows."""
    if context.size.name == "paper":
        return case.steps
    return min(context.size.steps(case.steps), case.most)


def _pairs(context: Context, shape: Shape) -> int:
    few = shape[1] >= LARGE
    if context.size.name == "tiny":
        return 4 if few else 8
    return 64 if few else 200


def _ready(context: Context, case: Case) -> Pairs:
    networks = [context.network(role) for role in case.roles]
    models = [n.model for n in networks]
    shape = networks[0].shape
    images = test_set(context, case.world)
    inside = context.pixels(images, shape=shape, limit=_pairs(context, shape))
    detector = _fitted(context, case, models, inside[:2])
    encoder = CODES[case.code](detector, models, inside[:2])
    starts = starts_of(context, case.start, inside)
    name = networks[0].name if len(networks) == 1 else f"{len(networks)} of {networks[0].name}"
    return Pairs(**vars(System.scored(detector, inside, starts, name)), encoder=encoder)


def _fitted(context: Context, case: Case, models: Sequence[Model], x: Images) -> Detector:
    options = dict(SCORES[case.score])
    make = registry.get(options.pop("detector"))
    if options.get("layers") == "stages":
        options["layers"] = models[0].stages(x)
    detector = make(models if len(models) > 1 else models[0], **options)
    try:
        detector.check_fitted()
    except NotFittedError:
        name, (c, h, w) = f"{case.world}/fit", x.shape[1:]
        source = name if context.has(name) else test_set(context, case.world)
        images = context.fit_images(source, shape=(c, h, w))
        fit_all([detector], images.batches(250, context.device))
    return detector


# codes


def _preprocessed(detector: Detector, models: Sequence[Model], x: Images) -> Encoder:
    assert isinstance(detector, ODIN)
    return preprocessed_logits(detector) if detector.eta else logits(detector.model)


def _classifier_input(detector: Detector, models: Sequence[Model], x: Images) -> Encoder:
    """What enters the hidden layers of VGG13; with no hidden layers, the features."""
    names = dict(models[0].net.named_modules())
    return layers(models[0], ("flat",)) if "flat" in names else features(models[0])


CODES: dict[str, Callable[[Detector, Sequence[Model], Images], Encoder]] = {
    "features": lambda detector, models, x: features(models[0]),
    "classifier input": _classifier_input,
    "logits": lambda detector, models, x: logits(models[0]),
    "preprocessed logits": _preprocessed,
    "layers": lambda detector, models, x: layers(models[0], models[0].stages(x)),
    "members": lambda detector, models, x: ensemble_logits(models),
    "score": lambda detector, models, x: score_of(detector),
}


def shared_code(case: Case) -> tuple[str, ...]:
    """What attacks on the same code have in common."""
    stepped = case.code == "preprocessed logits" and not case.score.endswith("PM=0")
    if case.code == "score" or stepped:
        return case.code, case.score
    return ("logits",) if case.code == "preprocessed logits" else (case.code,)


# starts


def _same_image(name: str) -> Callable[[Context, Images], Images]:
    """The middle one of a set for every pair."""

    def starts(context: Context, x_in: Images) -> Images:
        c, h, w = x_in.shape[1:]
        image = context.images(name, shape=(c, h, w), limit=3).pixels(context.device)[1]
        return image_starts(x_in, image)

    return starts


def starts_of(context: Context, name: str, x_in: Images) -> Images:
    """One start for each ID image; a name that is not in STARTS is that of a set of images."""
    if name in STARTS:
        return STARTS[name](context, x_in)
    c, h, w = x_in.shape[1:]
    return context.pixels(name, shape=(c, h, w), limit=len(x_in))


STARTS: dict[str, Callable[[Context, Images], Images]] = {
    "noise": lambda context, x_in: noise_starts(x_in, context.seed),
    "spiral": lambda context, x_in: spiral_starts(x_in),
    "checkerboard": lambda context, x_in: checkerboard_starts(x_in),
    "chestxray": _same_image("chestxray"),
    "lung-ct": _same_image("lung-ct"),
}
