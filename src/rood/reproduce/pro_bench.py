"""The networks and detectors that PRO's tables and figures share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from rood import tuning
from rood.data.base import ImageSet
from rood.detectors import fit_all, registry
from rood.detectors.base import Detector
from rood.detectors.energy import Energy
from rood.detectors.entropy import Entropy
from rood.detectors.gen import GEN
from rood.detectors.msp import MSP
from rood.detectors.pro import PRO
from rood.metrics import auroc
from rood.models.model import Model
from rood.reproduce.context import BATCH, Context
from rood.shapes import Images, Scores

Base = Callable[..., Detector]
BASES: dict[str, Base] = {
    "PRO-MSP": MSP,
    "PRO-ENT": Entropy,
    "PRO-MSP-T": MSP,
    "PRO-GEN": GEN,
}
# what each rectifies: GEN and temperature with the options that were chosen together with the step
PLAIN = {"PRO-MSP": "MSP", "PRO-ENT": "Entropy", "PRO-MSP-T": "MSP-T", "PRO-GEN": "GEN, PRO's base"}
_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {  # of the base, tried in turn
    "PRO-MSP": ({},),
    "PRO-ENT": ({},),
    "PRO-MSP-T": ({"temperature": 10.0}, {"temperature": 100.0}),
    "PRO-GEN": ({"gamma": 0.01, "top": 100}, {"gamma": 0.1, "top": 100}),
}
# pixels: a quarter of the paper's steps for its plain networks, the steps themselves for the robust
_EPS = (2.5e-5, 1.25e-4, 2.5e-4, 1e-3, 5e-3)
_STEPS = {"PRO-MSP": (1, 2, 3, 5), "PRO-ENT": (1, 3, 5, 7)}
_GRIDS = {"ODIN": "odin", "GEN": "gen", "KNN": "knn", "ASH": "ash_b", "Scale": "scale"}
OTHERS = {  # rows of the tables by registry name
    "MSP": "msp",
    "Entropy": "entropy",
    "TempScaling": "temperature_scaling",
    "ODIN": "odin",
    "MDS": "mahalanobis",
    "RMDS": "relative_mahalanobis",
    "GEN": "gen",
    "EBO": "energy",
    "MLS": "max_logit",
    "VIM": "vim",
    "KNN": "knn",
    "ASH": "ash_b",
    "Scale": "scale",
}


@dataclass(frozen=True)
class World:
    """One in-distribution set, its near and far OOD sets, and its networks by the table's name."""

    name: str
    near: tuple[str, ...]
    far: tuple[str, ...]
    tuning: str
    roles: dict[str, str]

    @property
    def outside(self) -> tuple[str, ...]:
        return (*self.near, *self.far)


_FAR = ("mnist", "svhn", "dtd", "scenes")
_TUNING = "tiny-imagenet/tuning"
CIFAR10 = World(
    "cifar10",
    ("cifar100/test", "tiny-imagenet"),
    _FAR,
    _TUNING,
    {"default": "ce", "robust": "augmix", "ADV": "adv", "ALOE": "aloe"},
)
CIFAR100 = World(
    "cifar100",
    ("cifar10/test", "tiny-imagenet"),
    _FAR,
    _TUNING,
    {"default": "ce", "robust": "adv"},
)
DIGITS = World(
    "digits",
    ("digits/near",),
    ("digits/patches", "digits/noise"),
    "digits/tuning",
    {"default": "ce", "robust": "aloe"},
)


def world_of(context: Context, world: World) -> World:
    """The world itself, or the digits that come along where its images are not to be had.

    Without a network that was trained with AugMix the one that was trained against attacks is the
    robust one.
    """
    if not context.has(f"{world.name}/judged"):
        return DIGITS
    if context.has_network(f"{world.name}/{world.roles['robust']}"):
        return world
    rest = {n: r for n, r in world.roles.items() if n not in ("robust", "ADV")}
    return replace(world, roles={"default": "ce", "robust": "adv"} | rest)


class Bench:
    """One network in one world, with every detector fitted and tuned on validation images."""

    def __init__(self, context: Context, world: World, role: str) -> None:
        self.context, self.world = context, world
        self.network = context.network(f"{world.name}/{role}")
        self.model: Model = self.network.model
        self.role = role

    @property
    def inside(self) -> str:
        return f"{self.world.name}/judged"

    def pixels(self, name: str) -> Images:
        """In-distribution images, or a share of an OOD set: the near ones together make a side."""
        n = self.context.size.images
        side = next((s for s in (self.world.near, self.world.far) if name in s), (name,))
        limit = None if n is None else max(4, n // len(side))
        if self.context.size.name == "tiny":
            limit = 16 if name == self.inside else 4
        return self.context.pixels(name, shape=self.network.shape, limit=limit)

    def validation(self) -> tuple[ImageSet, ImageSet]:
        """In-distribution images and outliers that no row is judged on."""
        n = 8 if self.context.size.name == "tiny" else 1000  # fewer choose at random
        names = f"{self.world.name}/validation", self.world.tuning
        sets = [self.context.images(x, shape=self.network.shape, limit=n) for x in names]
        return sets[0], sets[1]

    def detectors(self) -> dict[str, Detector]:
        """Every row of the tables, and the bases of PRO, by name."""
        key = ("pro detectors", self.world.name, self.role)
        return self.context.remember(key, lambda: dict(_made(self)))

    def scores(self) -> dict[str, dict[str, Scores]]:
        """By set and row."""

        def make() -> dict[str, dict[str, Scores]]:
            names = (self.inside, *self.world.outside)
            return {n: self.context.scores(self.detectors(), self.pixels(n)) for n in names}

        return self.context.remember(("pro scores", self.world.name, self.role), make)


def _made(bench: Bench) -> Iterator[tuple[str, Detector]]:
    context, model = bench.context, bench.model
    train = context.fit_images(f"{bench.world.name}/fit", shape=bench.network.shape)
    inside, outside = bench.validation()
    found: dict[str, Detector] = {}
    for row, name in OTHERS.items():
        options: dict[str, Any] = {}
        if row in _GRIDS and context.size.name != "tiny":
            grid = tuning.GRIDS[f"openood/{_GRIDS[row]}"]
            entry = registry.get(name)
            _, options = tuning.tune(
                entry, model, grid, train=train, inside=inside, outside=outside, batch_size=BATCH
            )
        found[row] = registry.get(name)(model, **options)
    fit_all(found.values(), train.batches(BATCH, context.device))
    yield from found.items()
    x_in, x_out = (s.pixels(context.device) for s in (inside, outside))
    for row in BASES:
        best = rectified(context, model, row, x_in, x_out)
        yield row, best
        if PLAIN[row] not in OTHERS:
            yield PLAIN[row], best.base


def rectified(context: Context, model: Model, row: str, x_in: Images, x_out: Images) -> PRO:
    """The step and count of steps with the largest AUROC; one climb serves every count."""
    best: tuple[float, PRO] | None = None
    counts = _STEPS.get(row, _STEPS["PRO-MSP"])
    tiny = context.size.name == "tiny"
    for options in _OPTIONS[row][:1] if tiny else _OPTIONS[row]:
        base = BASES[row](model, **options)
        for eps in _EPS[2:3] if tiny else _EPS:
            pro = PRO(base, eps=eps, steps=counts[1] if tiny else counts[-1])
            s_in, s_out = climbs(pro, x_in), climbs(pro, x_out)
            for k in counts[:2] if tiny else counts:
                value = auroc(inside=s_in[: k + 1].amax(0), outside=s_out[: k + 1].amax(0))
                if best is None or value > best[0]:
                    best = value, PRO(base, eps=eps, steps=k)
    assert best is not None
    return best[1]


def climbs(pro: PRO, x: Images) -> torch.Tensor:
    """The score after 0, 1, ... steps, (t, n), on the CPU."""
    return torch.cat([pro.climb(b)[1].cpu() for b in x.split(BATCH)], dim=1)


def bases(model: Model) -> dict[str, Detector]:
    """Plain scores, for landscapes."""
    return {"MSP": MSP(model), "EBO": Energy(model), "Entropy": Entropy(model), "GEN": GEN(model)}
