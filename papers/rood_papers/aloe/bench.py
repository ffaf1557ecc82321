"""The networks, detectors and attacked images that ALOE's tables share."""

from dataclasses import replace
from pathlib import Path

import torch

from rood.attacks import PGD, Goal
from rood.detectors import MSP, ODIN, LayeredMahalanobis, fit_all
from rood.errors import CapabilityError, DataError, UnknownNameError
from rood.metrics import fpr_at_tpr_in
from rood.models.backbones.densenet_bc import DenseNetBC
from rood.shapes import Images
from rood.threat import Linf
from rood.training import job
from rood.training.objectives.robust import Robust
from rood.training.recipe import Recipe, get
from rood_papers.aloe import goals
from rood_papers.framework.bench import DIGITS, Bench, Detectors, World
from rood_papers.framework.context import BATCH, Context, NotRun
from rood_papers.presets import aloe_official

PRESETS = {"paper": PGD.aloe, "official": aloe_official}
ETA = {"gtsrb": 0.0004, "cifar10": 0.0014, "cifar100": 0.0028, "digits": 0.0014}  # of ODIN
_FAR = ("dtd", "scenes", "tiny-imagenet")
WORLDS = {
    name: World(name, (other, *_FAR))
    for name, other in (("gtsrb", "cifar10/test"), ("cifar10", "svhn"), ("cifar100", "svhn"))
}


def worlds(context: Context, *names: str) -> list[World]:
    """The worlds with these names; at tiny only the last, which is the cheapest.

    Where none of their images can be read, the shipped digits stand in.
    """
    there = [n for n in names if context.has(f"{n}/test")]
    if context.size.tiny and there:
        return [WORLDS[there[-1]]]
    return [WORLDS[n] for n in names] + ([] if there else [DIGITS])


class SoftmaxBench(Bench):
    """MSP and ODIN, and the images that Algorithm 1 makes against the softmax."""

    def count(self, name: str) -> int | None:
        """All OOD sets together make one side."""
        n = self.context.size.images
        return n if n is None or name == self.inside else max(1, n // len(self.world.outside))

    def fit(self) -> Detectors:
        return {"msp": MSP(self.model), "odin": ODIN(self.model, eta=ETA[self.world.name])}

    def goal(self, preset: str, inside: bool) -> Goal:
        """The goal of the paper's attack, as written or as coded."""
        return goals.aloe_confidence(self.model, inside)

    def attacked(self, name: str, preset: str, levels: int = 1) -> Images:
        """A set after the paper's attack on the detector."""
        goal = lambda: self.goal(preset, name == self.inside)
        climb = lambda: self._climbed(goal(), self.pixels(name), preset, levels)
        return self.once((name, preset, levels), climb)

    def misled(self, preset: str) -> Images:
        """ID images after the attack on the classifier."""
        goal = goals.cross_entropy(self.model, self.labels())
        climb = lambda: self._climbed(goal, self.pixels(self.inside), preset, 1)
        return self.once(("misled", preset), climb)

    def _climbed(self, goal: Goal, x: Images, preset: str, levels: int) -> Images:
        attack = PRESETS[preset]()
        if self.world is DIGITS:  # whole levels and steps of 1/255 are made for small budgets
            attack = replace(PGD.aloe(), step=None)
        attack = replace(attack, steps=self.context.size.steps(attack.steps))
        threat = Linf(levels * self.world.level)
        draws = lambda: self.context.generator("aloe", preset)
        parts = torch.arange(len(x), device=x.device).split(BATCH)
        return torch.cat([attack(goal.take(i), x[i], threat, draws()) for i in parts])


class LayersBench(SoftmaxBench):
    """Mahalanobis of several layers, and the images that Algorithm 2 makes against it."""

    def mahalanobis(self) -> LayeredMahalanobis:
        """Fitted, weighted against outliers, with the step that misses fewest of them."""
        return self.once("mahalanobis", lambda: _mahalanobis(self))

    def fit(self) -> Detectors:
        return {"mahalanobis": self.mahalanobis()}

    def goal(self, preset: str, inside: bool) -> Goal:
        as_written = preset == "paper"
        by = goals.aloe_mahalanobis if as_written else goals.aloe_mahalanobis_official
        return by(self.mahalanobis(), inside)


def _mahalanobis(bench: LayersBench) -> LayeredMahalanobis:
    """As in ALOE, the regression and the choice of the step see the same images."""
    context, world = bench.context, bench.world
    fit = context.fit_images(f"{world.name}/fit", shape=bench.network.shape)
    n = 40 if context.size.tiny else 1000
    inside = fit.thin(n).pixels(context.device).split(BATCH)
    outside = bench.pixels(world.tuning, n).split(BATCH)
    net = bench.model.net
    layers = net.lee_layers if isinstance(net, DenseNetBC) else None
    base = LayeredMahalanobis(bench.model, layers=layers)
    fit_all([base], fit.batches(BATCH, context.device))

    def tried(eta: float) -> tuple[float, LayeredMahalanobis]:
        own = LayeredMahalanobis(bench.model, layers=layers, eta=eta)
        own.load_fitted(base.fitted_state())
        own.weigh(inside, outside)
        s_in, s_out = (context.scores({"m": own}, torch.cat(x))["m"] for x in (inside, outside))
        return fpr_at_tpr_in(inside=s_in, outside=s_out), own

    return min(map(tried, etas(context)), key=lambda found: found[0])[1]


def etas(context: Context) -> tuple[float, ...]:
    """The paper's 21 steps; fewer below size paper, as each costs a pass per layer."""
    few = {"tiny": (0.0014,), "small": (0.0, 0.0004, 0.0014)}
    return few.get(context.size.name, tuple(round(0.0002 * i, 4) for i in range(21)))


# the robust networks that Table 3 needs for each budget

EPOCHS = 20
SMALL: dict[str, object] = {"depth": 16, "widen": 2}  # except at size paper


def train_for(context: Context, world: World, method: str, levels: int) -> None:
    """Train the network of a method for a budget where the context has none."""
    role = f"{world.name}/{method}-{levels}"
    if context.size.tiny or context.has_network(role):
        return
    try:
        recipe = stronger(get(f"{world.name}-{method}"), levels, context.size.name)
    except UnknownNameError as e:
        raise NotRun(f"no recipe {world.name}-{method}") from e
    context.train(role, lambda path: _train(recipe, path, context))


def stronger(recipe: Recipe, levels: int, size: str) -> Recipe:
    """The recipe of a robust network of the zoo at levels/255, with fewer epochs."""
    assert isinstance(recipe.objective, Robust)
    settings = replace(recipe.settings, epochs=min(recipe.settings.epochs, EPOCHS))
    deep = recipe.architecture["depth"] != SMALL["depth"] and size != "paper"
    return replace(
        recipe,
        objective=replace(recipe.objective, eps=levels / 255),
        settings=settings,
        architecture=SMALL if deep else recipe.architecture,
    )


def _train(recipe: Recipe, path: Path, context: Context) -> None:
    try:
        for _ in job.run(recipe, path, "rood reproduce aloe/table3", device=context.device):
            pass
    except (DataError, CapabilityError) as e:
        raise NotRun("no data") from e
