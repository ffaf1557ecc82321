"""The networks, detectors and attacked images that ALOE's tables share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from rood.attacks.base import Goal
from rood.attacks.pgd import PGD
from rood.detectors import fit_all
from rood.detectors.base import Detector
from rood.detectors.layered_mahalanobis import LayeredMahalanobis
from rood.detectors.msp import MSP
from rood.detectors.odin import ODIN
from rood.metrics import fpr_at_tpr_in
from rood.models.backbones.densenet_bc import DenseNetBC
from rood.shapes import Images, Labels, Scores
from rood.threat import Linf
from rood_papers.framework.context import BATCH, Context, Network
from rood_papers.framework.goals import (
    aloe_confidence,
    aloe_mahalanobis,
    aloe_mahalanobis_official,
    cross_entropy,
)
from rood_papers.presets import aloe_official

PRESETS = {"paper": PGD.aloe, "official": aloe_official}
Detectors = dict[str, Detector]
ScoresBySet = dict[str, dict[str, Scores]]


@dataclass(frozen=True)
class World:
    """One in-distribution set with what ALOE holds against it."""

    name: str
    outside: tuple[str, ...]
    tuning: str  # outliers that the Mahalanobis regression learns from
    eta: float  # of ODIN, as the paper chose it
    level: float = 1 / 255  # one unit of the budget


_FAR = ("dtd", "scenes", "tiny-imagenet")
_TUNING = "tiny-imagenet/tuning"
WORLDS = {
    w.name: w
    for w in (
        World("gtsrb", ("cifar10/test", *_FAR), _TUNING, 0.0004),
        World("cifar10", ("svhn", *_FAR), _TUNING, 0.0014),
        World("cifar100", ("svhn", *_FAR), _TUNING, 0.0028),
    )
}
DIGITS = World(
    "digits", ("digits/near", "digits/patches", "digits/noise"), "digits/tuning", 0.0014, 0.1
)


def worlds(context: Context, *names: str) -> list[World]:
    """Those of the paper that are asked for; at tiny the last alone, which is the cheapest.

    Where no image of theirs is to be had, the digits that come along stand in.
    """
    there = [n for n in names if context.has(f"{n}/test")]
    if context.size.name == "tiny" and there:
        return [WORLDS[there[-1]]]
    return [WORLDS[n] for n in names] + ([] if there else [DIGITS])


class Bench:
    """One network in one world; whatever is fitted or attacked is kept in the context."""

    def __init__(self, context: Context, world: World, role: str) -> None:
        self.context, self.world, self.role = context, world, role
        self.network: Network = context.network(f"{world.name}/{role}")
        self.model = self.network.model
        self.shape = self.network.shape

    def pixels(self, name: str, limit: int | None = None) -> Images:
        """A set on the device, in the network's size; all OOD sets together make one side."""
        n = self.context.size.images
        if limit is None and n is not None and name != self.inside:
            limit = max(1, n // len(self.world.outside))
        return self.context.pixels(name, shape=self.shape, limit=limit)

    @property
    def inside(self) -> str:
        return f"{self.world.name}/test"

    def labels(self) -> Labels:
        """Of the in-distribution images."""
        y = self.context.images(self.inside).labels
        assert y is not None
        return y.long().to(self.context.device)

    def softmax(self) -> Detectors:
        """The softmax score and ODIN with the paper's step."""
        return {"msp": MSP(self.model), "odin": ODIN(self.model, eta=self.world.eta)}

    def mahalanobis(self) -> LayeredMahalanobis:
        """Fitted, weighed against outliers, with the step that misses fewest of them."""
        key = ("aloe mahalanobis", self.world.name, self.role)
        return self.context.remember(key, lambda: _mahalanobis(self))

    def attacked(self, name: str, preset: str, levels: int = 1, *, layers: bool = False) -> Images:
        """A set after the attack of the paper on the softmax, or on the layers' regression."""
        inside = name == self.inside
        goal: Goal
        if layers:
            by = aloe_mahalanobis if preset == "paper" else aloe_mahalanobis_official
            goal = by(self.mahalanobis(), inside)
        else:
            goal = aloe_confidence(self.model, inside)
        key = ("aloe", self.world.name, self.role, name, preset, levels, layers)
        return self.context.remember(
            key, lambda: self._climbed(goal, self.pixels(name), preset, levels)
        )

    def clean_scores(self, layers: bool) -> ScoresBySet:
        """Of both sides before any attack, with the detectors that `judges` gives."""
        names = (self.inside, *self.world.outside)
        key = ("aloe clean", self.world.name, self.role, layers)
        sets = lambda: {n: self.pixels(n) for n in names}
        return self.context.remember(key, lambda: self.scores(self.judges(layers), sets()))

    def judges(self, layers: bool) -> Detectors:
        """Who judges what Algorithm 2 made, or what Algorithm 1 made."""
        return {"mahalanobis": self.mahalanobis()} if layers else self.softmax()

    def scores(self, detectors: Detectors, sets: Mapping[str, Images]) -> ScoresBySet:
        """By set and detector."""
        return {name: self.context.scores(detectors, x) for name, x in sets.items()}

    def misled(self, preset: str) -> Images:
        """In-distribution images after the attack on the classifier."""
        key = ("aloe misled", self.world.name, self.role, preset)
        goal = cross_entropy(self.model, self.labels())
        return self.context.remember(
            key, lambda: self._climbed(goal, self.pixels(self.inside), preset, 1)
        )

    def _climbed(self, goal: Goal, x: Images, preset: str, levels: int) -> Images:
        attack = PRESETS[preset]()
        if self.world is DIGITS:  # whole levels and steps of 1/255 are made for small budgets
            attack = replace(PGD.aloe(), step=None)
        attack = replace(attack, steps=self.context.size.steps(attack.steps))
        threat = Linf(levels * self.world.level)
        found = []
        for rows in torch.arange(len(x), device=x.device).split(BATCH):
            part = goal.take(rows)
            found.append(attack(part, x[rows], threat, self.context.generator("aloe", preset)))
        return torch.cat(found)


def _mahalanobis(bench: Bench) -> LayeredMahalanobis:
    """As ALOE: the regression and the choice of the step see the same images."""
    context, world = bench.context, bench.world
    fit = context.fit_images(f"{world.name}/fit", shape=bench.shape)
    n = 40 if context.size.name == "tiny" else 1000
    inside = fit.thin(n).pixels(context.device).split(BATCH)
    outside = bench.pixels(world.tuning, n).split(BATCH)
    net = bench.model.net
    layers = net.lee_layers if isinstance(net, DenseNetBC) else None
    base = LayeredMahalanobis(bench.model, layers=layers)
    fit_all([base], fit.batches(BATCH, context.device))
    best: tuple[float, LayeredMahalanobis] | None = None
    for eta in _etas(context):
        tried = LayeredMahalanobis(bench.model, layers=layers, eta=eta)
        tried.load_fitted(base.fitted_state())
        tried.weigh(inside, outside)
        s_in, s_out = (context.scores({"m": tried}, torch.cat(x))["m"] for x in (inside, outside))
        missed = fpr_at_tpr_in(inside=s_in, outside=s_out)
        if best is None or missed < best[0]:
            best = missed, tried
    assert best is not None
    return best[1]


def _etas(context: Context) -> tuple[float, ...]:
    """The paper's 21 steps, fewer where time is short: each costs passes a layer."""
    few = {"tiny": (0.0014,), "small": (0.0, 0.0004, 0.0014)}
    return few.get(context.size.name, tuple(round(0.0002 * i, 4) for i in range(21)))
