"""The networks and detectors that PRO's tables and figures share."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from rood import tuning
from rood.data.base import ImageSet
from rood.data.contamination import without_classes
from rood.detectors import GEN, MSP, PRO, Energy, Entropy, fit_all, registry
from rood.detectors.base import Detector, ScoreFunction
from rood.metrics import auroc
from rood.models.model import Model
from rood.numerics.softmax import log_entropy
from rood.shapes import Images
from rood_papers.framework.bench import DIGITS, Bench, Detectors, World
from rood_papers.framework.context import ALL, BATCH, Context
from rood_papers.framework.paper import read

Base = Callable[..., Detector]
BASES: dict[str, Base] = {
    "PRO-MSP": MSP,
    "PRO-ENT": Entropy,
    "PRO-MSP-T": MSP,
    "PRO-GEN": GEN,
}
# what each rectifies: GEN and temperature with the options that were chosen together with the step
PLAIN = {"PRO-MSP": "MSP", "PRO-ENT": "Entropy", "PRO-MSP-T": "MSP-T", "PRO-GEN": "GEN, PRO's base"}
FILE = read("pro")
NOTES, OTHERS, _GRIDS = FILE["notes"], FILE["detectors"], FILE["grids"]  # the last two by row
_LETTERS = {"top": "M", "steps": "K"}  # of the papers
LEAST, LARGEST = NOTES["least"], NOTES["largest"]  # of the steps tried
UNIT = 0.25  # of the paper's steps on plain networks, in pixels; on robust ones they are pixels
ON_VALIDATION = {"TempScaling"}  # fitted there, as OpenOOD does; all others on training images
# some of their classes are CIFAR's too
SHARED = ("tiny-imagenet", "tiny-imagenet/tuning", "scenes")
_FAR = ("mnist", "svhn", "dtd", "scenes")
CIFAR10 = World(
    "cifar10",
    _FAR,
    ("cifar100/test", "tiny-imagenet"),
    roles={"default": "ce", "robust": "augmix", "ADV": "adv", "ALOE": "aloe"},
)
CIFAR100 = World(
    "cifar100", _FAR, ("cifar10/test", "tiny-imagenet"), roles={"default": "ce", "robust": "adv"}
)


def world_of(context: Context, world: World) -> World:
    """The world itself, or the shipped digits where its images cannot be read.

    Where no network was trained with AugMix, the one trained against attacks is the robust one.
    """
    if not context.has(f"{world.name}/judged"):
        return DIGITS
    if context.has_network(f"{world.name}/{world.roles['robust']}"):
        return world
    rest = {n: r for n, r in world.roles.items() if n not in ("robust", "ADV")}
    return replace(world, roles={"default": "ce", "robust": "adv"} | rest)


class TunedBench(Bench):
    """One network in one world, with every detector fitted and tuned on validation images."""

    judged = "judged"

    @property
    def unit(self) -> float:
        """Pixels per unit of the paper's steps on this network."""
        return UNIT if self.role == self.world.roles["default"] else 1.0

    def images(self, name: str, limit: int | None) -> ImageSet:
        """At most `limit` of a set, without images that show a class of the network."""
        found = self.context.images(name, limit=ALL)
        if name in SHARED:
            own = self.context.images(f"{self.world.name}/fit", limit=1).classes
            found = without_classes(found, own)
        return found.thin(limit).to_shape(self.network.shape)

    def count(self, name: str) -> int | None:
        """The near sets together make one side, and so do the far ones."""
        if self.context.size.tiny:
            return 16 if name == self.inside else 4
        n = self.context.size.images
        side = next((s for s in (self.world.near, self.world.far) if name in s), (name,))
        return None if n is None else max(4, n // len(side))

    def validation(self) -> tuple[ImageSet, ImageSet]:
        """ID images and outliers that no cell is about."""
        n = 8 if self.context.size.tiny else 1000  # fewer would choose at random
        names = f"{self.world.name}/validation", self.world.tuning
        return self.images(names[0], n), self.images(names[1], n)

    def fit(self) -> Detectors:
        """Every row of the tables, and the bases of PRO, by name."""
        return dict(_made(self))


def _made(bench: TunedBench) -> Iterator[tuple[str, Detector]]:
    context, model = bench.context, bench.model
    tiny = context.size.tiny
    train = context.all_fit_images(f"{bench.world.name}/fit", shape=bench.network.shape)
    inside, outside = bench.validation()
    found: dict[str, Detector] = {}
    for row, name in OTHERS.items():
        options: dict[str, Any] = {}
        if row in _GRIDS and not tiny:
            grid = tuning.GRIDS[_GRIDS[row]]
            entry = registry.get(name)
            _, options = tuning.tune(
                entry, model, grid, train=train, inside=inside, outside=outside, batch_size=BATCH
            )
        found[row] = registry.get(name)(model, **options)
    for images, held_out in ((inside, True), (train, False)):
        group = [d for row, d in found.items() if (row in ON_VALIDATION) == held_out]
        fit_all(group, images.batches(BATCH, context.device))
    yield from found.items()
    x_in, x_out = (s.pixels(context.device) for s in (inside, outside))
    for row in BASES:
        best = rectified(bench, row, x_in, x_out)
        yield row, best
        if PLAIN[row] not in OTHERS:
            yield PLAIN[row], best.base


def rectified(bench: TunedBench, row: str, x_in: Images, x_out: Images) -> PRO:
    """The point of the paper's grid with the largest AUROC; one climb serves every count."""
    grid = dict(tuning.GRIDS[_GRIDS[row]])
    counts, steps = grid.pop("steps"), grid.pop("eps")
    if "top" in grid:  # GEN uses at most as many probabilities as there are classes
        grid["top"] = sorted({min(m, bench.model.classes) for m in grid["top"]})
    if bench.context.size.tiny:
        grid = {name: values[:1] for name, values in grid.items()}
        counts, steps = counts[:2], steps[-2:-1]
    best: tuple[float, PRO] | None = None
    for options in product(*grid.values()):
        base = BASES[row](bench.model, **dict(zip(grid, options, strict=True)))
        for eps in (e * bench.unit / UNIT for e in steps):  # the grids are in pixels of plain ones
            pro = PRO(base, eps=eps, steps=counts[-1])
            s_in, s_out = climbs(pro, x_in), climbs(pro, x_out)
            for k in counts:
                value = auroc(inside=s_in[: k + 1].amax(0), outside=s_out[: k + 1].amax(0))
                if best is None or value > best[0]:
                    best = value, PRO(base, eps=eps, steps=k)
    assert best is not None
    return best[1]


def chosen(row: str, detector: Detector, unit: float = UNIT) -> str:
    """The options that tuning chose, of PRO's base too; nothing where nothing was tuned.

    A step at an end of the grid is said to be one: at the lower end PRO does next to nothing.
    """
    with_pro = {base: pro for pro, base in PLAIN.items() if base not in OTHERS}
    grid = tuning.GRIDS.get(_GRIDS.get(with_pro.get(row, row), ""), {})
    own = detector.settings()
    options = own | own.get("base", {})
    steps = [e * unit / UNIT for e in grid.get("eps", ())]
    ends = {min(steps): LEAST, max(steps): LARGEST} if steps else {}
    said = lambda n, v: f"{v:g}{ends.get(v, '') if n == 'eps' else ''}"
    names = [n for n in grid if n in options]
    return ", ".join(f"{_LETTERS.get(n, n)}={said(n, options[n])}" for n in names)


def climbs(pro: PRO, x: Images) -> torch.Tensor:
    """The score after 0, 1, ... steps, (t, n), on the CPU."""
    return torch.cat([pro.climb(b)[1].cpu() for b in x.split(BATCH)], dim=1)


def as_printed(model: Model) -> dict[str, ScoreFunction]:
    """Scores as their papers have them: ours rank alike, but have other landscapes."""
    msp, gen = MSP(model), GEN(model)
    terms = min(gen.top, model.classes)
    return {
        "MSP": lambda x: torch.sigmoid(-msp.score_images(x).double()),
        "EBO": Energy(model).score_images,
        "Entropy": lambda x: log_entropy(model(x).logits).exp(),
        "GEN": lambda x: terms * (gen.gamma * gen.score_images(x)).exp(),
    }
