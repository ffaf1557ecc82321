"""The robust networks that ALOE's Table 3 needs for each budget, trained where there are none."""

from dataclasses import replace
from pathlib import Path

from rood.errors import CapabilityError, DataError, UnknownNameError
from rood.training import job
from rood.training.objectives.robust import Robust
from rood.training.recipe import Recipe, get
from rood_papers.aloe.bench import World
from rood_papers.framework.context import Context, NotRun

EPOCHS = 20
SMALL: dict[str, object] = {"depth": 16, "widen": 2}  # but for the size `paper`, whose time it is


def ready(context: Context, world: World, method: str, levels: int) -> None:
    """See that the context has the network of a method for a budget, if need be by training."""
    role = f"{world.name}/{method}-{levels}"
    if context.size.name == "tiny" or context.has_network(role):
        return
    try:
        recipe = stronger(get(f"{world.name}-{method}"), levels, context.size.name)
    except UnknownNameError as e:
        raise NotRun(f"no recipe {world.name}-{method}") from e
    context.train(role, lambda path: _train(recipe, path, context))


def stronger(recipe: Recipe, levels: int, size: str) -> Recipe:
    """The recipe of a robust network of the zoo for so many 1/255, and fewer epochs."""
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
