"""The contract of every attack, as checks.

for check in attack_checks(MyAttack):
    check(MyAttack, toy_world())
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rood.attacks.base import AnyGoal, Attack
from rood.attacks.random_search import RandomSearch
from rood.errors import InputError
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.testing._support import example, no_trace, require, require_error
from rood.testing.world import World
from rood.threat import L0, L1, L2, Linf, Patch, Threat

AttackFactory: TypeAlias = Callable[..., Attack]  # what `registry.get(name)` gives
AttackCheck: TypeAlias = Callable[[AttackFactory, World], None]

THREATS: tuple[Threat, ...] = (Linf(8 / 255), L2(0.5), Linf(0.0), L2(0.0))
SPARSE: tuple[Threat, ...] = (L1(4.0), L0(8), Patch(3))


def attack_checks(factory: AttackFactory) -> Iterator[AttackCheck]:
    """Every check that applies; whether the attack uses gradients is tested."""
    attack = make(factory)
    yield check_stays_in_the_threat_model
    yield check_is_never_worse_than_the_start
    yield check_is_reproducible
    yield check_treats_each_image_on_its_own
    yield check_survives_a_flat_goal
    yield check_never_takes_nan_for_better
    yield check_works_without_autograd
    yield check_leaves_everything_as_it_was
    yield check_refuses_what_is_not_an_image
    yield check_gives_nothing_for_no_images
    yield check_gains_more_with_a_larger_budget
    if budget(attack) is not None:
        yield check_keeps_its_query_budget
    if not isinstance(attack, RandomSearch):
        yield check_beats_random_search
    if uses_gradients(attack):
        yield check_reaches_the_optimum_of_a_linear_goal


def make(factory: AttackFactory) -> Attack:
    """The attack with default settings, or its class's `example()`."""
    attack: Attack = example(factory)()
    return attack


def budget(attack: Attack) -> int | None:
    """Allowed evaluations of the goal per image, including the start and final comparison."""
    if hasattr(attack, "steps"):
        return int(getattr(attack, "restarts", 1) * (attack.steps + 1) + 2)
    return int(attack.queries + 2) if hasattr(attack, "queries") else None


def uses_gradients(attack: Attack) -> bool:
    """Whether it ever asks for a gradient of the goal."""
    asked = []

    def goal(x: Images) -> Scores:
        asked.append(x.requires_grad)
        return x.flatten(1).sum(dim=1)

    attack(goal, torch.full((1, 3, 4, 4), 0.5), Linf(0.1), _source())
    return any(asked)


class Counted:
    """A goal that counts the images it evaluates."""

    def __init__(self, goal: AnyGoal) -> None:
        self.goal = goal
        self.images = 0

    def __call__(self, x: Images) -> Scores:
        self.images += len(x)
        return self.goal(x)


def check_stays_in_the_threat_model(factory: AttackFactory, world: World) -> None:
    """Ball and box, for every threat and eps = 0, also from pixels of exactly 0 or 1."""
    x = world.inside[:2]
    images = torch.cat([x, x.round(), torch.zeros_like(x[:1]), torch.ones_like(x[:1])])
    for threat in THREATS + SPARSE:
        found = make(factory)(_energy(world), images, threat, _source())
        require(found.shape == images.shape, f"gave {found.shape} for {images.shape}")
        inside = ((found >= 0) & (found <= 1)).all()
        require(inside, f"left the pixel box: [{found.min():.6g}, {found.max():.6g}], {threat}")
        size = threat.size(found - images).max()
        require(threat.contains(found, images).all(), f"moved by {size:.6g} under {threat}")


def check_is_never_worse_than_the_start(factory: AttackFactory, world: World) -> None:
    """No image ends below its start: for either sign, and for misleading gradients."""
    x = world.inside[:12]
    energy = _energy(world)
    goals = {
        "a goal": energy,
        "a negated goal": lambda x: -energy(x),
        "a misleading goal": _misleading,
    }
    for what, goal in goals.items():
        for threat in THREATS:
            found = make(factory)(goal, x, threat, _source())
            with torch.no_grad():
                lost = (goal(x) - goal(found)).max().item()
            require(lost <= 0, f"{what} fell by {lost:.3g} under {threat}: keep the start instead")


def check_is_reproducible(factory: AttackFactory, world: World) -> None:
    """The same generator gives the same images, whatever the global RNG state."""
    x, goal = world.inside[:6].double(), _waves
    with no_trace("the attack"):
        first = make(factory)(goal, x, Linf(8 / 255), _source(3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        second = make(factory)(goal, x, Linf(8 / 255), _source(3))
    require(torch.equal(first, second), "the same generator gave different images")


def check_treats_each_image_on_its_own(factory: AttackFactory, world: World) -> None:
    """Batch size and order have no effect: each image has its own random numbers."""
    x = world.inside[:6].double()  # float64, to exclude rounding
    for threat in (Linf(8 / 255), L2(0.5)):

        def attacked(x: Images, threat: Threat = threat) -> Images:
            return make(factory)(_waves, x, threat, _source(5))

        together = attacked(x)
        alone = torch.cat([attacked(one) for one in x.split(1)])
        off = (alone - together).abs().max().item()
        require(off < 1e-6, f"an image alone ends {off:.3g} from where it ends in a batch")
        off = (attacked(x.flip(0)).flip(0) - together).abs().max().item()
        require(off < 1e-6, f"the order of the batch moves results by {off:.3g}")


def check_survives_a_flat_goal(factory: AttackFactory, world: World) -> None:
    """A zero gradient everywhere gives no NaN."""
    x = world.inside[:6]
    for threat in THREATS:
        found = make(factory)(lambda x: 0 * x.flatten(1).sum(dim=1), x, threat, _source())
        require(found.isfinite().all(), f"a flat goal gave pixels that are not finite, {threat}")
        require(threat.contains(found, x).all(), f"a flat goal led out of {threat}")


def check_never_takes_nan_for_better(factory: AttackFactory, world: World) -> None:
    """A goal that is NaN away from the start: the result is not NaN."""
    x = world.inside[:6]
    start = x.flatten(1).sum(dim=1)

    def breaks(x: Images) -> Scores:
        total = x.flatten(1).sum(dim=1)
        return torch.where(total > start + 1e-3, torch.nan, total)

    for threat in THREATS[:2]:
        found = make(factory)(breaks, x, threat, _source())
        require(found.isfinite().all(), f"a goal that can be NaN gave NaN pixels, {threat}")
        with torch.no_grad():
            require((breaks(found) >= breaks(x)).all(), f"NaN was taken for better, {threat}")


def check_works_without_autograd(factory: AttackFactory, world: World) -> None:
    """The same images under no_grad and inference_mode."""
    x, goal = world.inside[:4], _energy(world)
    want = make(factory)(goal, x, Linf(8 / 255), _source())
    for switch in (torch.no_grad, torch.inference_mode):
        with switch():
            found = make(factory)(goal, x.clone(), Linf(8 / 255), _source())
            off = (found - want).abs().max().item()
        require(off < 1e-6, f"{switch.__name__} moves the result by {off:.3g}")


def check_leaves_everything_as_it_was(factory: AttackFactory, world: World) -> None:
    """Input, model and global RNG state."""
    x = world.inside[:4].clone()
    with no_trace("the attack", world.model, x=x):
        make(factory)(_energy(world), x, Linf(8 / 255), _source())


def check_refuses_what_is_not_an_image(factory: AttackFactory, world: World) -> None:
    """InputError for wrong pixels, rank or dtype."""
    x = world.inside[:2]
    wrong = {
        "normalised pixels": (x - 0.5) / 0.25,
        "NaN pixels": x * torch.nan,
        "one image without a batch axis": x[0],
        "whole numbers": x.round().to(torch.uint8),
    }
    for what, images in wrong.items():
        call = lambda images=images: make(factory)(_energy(world), images, Linf(0.1), _source())
        require_error(InputError, call, what)


def check_gives_nothing_for_no_images(factory: AttackFactory, world: World) -> None:
    """An empty batch stays empty."""
    try:
        found = make(factory)(_energy(world), world.inside[:0], Linf(0.1), _source())
    except Exception as e:
        raise AssertionError(f"an empty batch gives an error: {e}") from e
    require(found.shape == world.inside[:0].shape, f"gave {tuple(found.shape)} for no images")


def check_gains_more_with_a_larger_budget(factory: AttackFactory, world: World) -> None:
    """Larger eps, and more steps or queries, gain at least as much on average."""
    attack, x, goal = make(factory), world.inside[:12], _energy(world)
    gains = [_gain(attack, goal, x, Linf(eps / 255)) for eps in (1, 4, 16)]
    require(gains == sorted(gains), f"gains {gains} fall as eps grows: is eps used?")
    for field in ("steps", "queries"):
        if hasattr(attack, field):
            few, many = (_gain(_with(attack, field, n), goal, x, Linf(8 / 255)) for n in (3, 30))
            require(many >= 0.99 * few, f"30 {field} gain {many:.4g}, 3 gain {few:.4g}")


def check_keeps_its_query_budget(factory: AttackFactory, world: World) -> None:
    """At most restarts (steps + 1) + 2 evaluations per image, or queries + 2."""
    attack, x = make(factory), world.inside[:4]
    goal = Counted(_energy(world))
    attack(goal, x, Linf(8 / 255), _source())
    asked, allowed = goal.images / len(x), budget(attack)
    require(allowed is not None and asked <= allowed, f"asked {asked:g} times of {allowed} allowed")


def check_beats_random_search(factory: AttackFactory, world: World) -> None:
    """At equal queries; if it does not, the search is broken."""
    x = world.inside[:12]
    goal = Counted(_energy(world))
    mine = _gain(make(factory), goal, x, Linf(8 / 255))
    queries = max(1, goal.images // len(x) - 4)  # without those of `_gain` and the final comparison
    other = _gain(RandomSearch(queries=queries), goal, x, Linf(8 / 255))
    require(mine >= other, f"gains {mine:.4g}, random search {other:.4g} in {queries} queries")


def check_reaches_the_optimum_of_a_linear_goal(factory: AttackFactory, world: World) -> None:
    """<w, x> rises by what the threat allows in closed form, and by no more."""
    x = 0.3 + 0.4 * world.inside[:8]  # the L2 ball lies inside the box
    w = torch.randn(x.shape, generator=generator(0, "linear goal"))
    goal = lambda x: (x * w[: len(x)]).flatten(1).sum(dim=1)
    # in L2 a start on the sphere converges towards w without reaching it
    for threat, least in ((Linf(8 / 255), 0.99), (L2(0.5), 0.98), *((t, 0.98) for t in SPARSE)):
        gain = goal(make(factory)(goal, x, threat, _source())) - goal(x)
        share = (gain / best_gain(threat, w, x)).min().item()
        require(share >= least, f"reaches {share:.1%} of the optimum of a linear goal, {threat}")


def best_gain(threat: Threat, w: Images, x: Images) -> Scores:
    """The largest <w, x' - x> over the images x' that a threat allows, in closed form.

    The pixel box counts, but for L2: there the ball must lie inside it.
    """
    room = torch.where(w > 0, 1 - x, x)
    if isinstance(threat, Linf):
        return (w.abs() * room.clamp(max=threat.eps)).flatten(1).sum(dim=1)
    if isinstance(threat, L2):
        return threat.eps * w.flatten(1).norm(dim=1)
    if isinstance(threat, L1):  # the steepest pixels first, each as far as the box lets it
        slope, order = w.abs().flatten(1).sort(dim=1, descending=True)
        most = room.flatten(1).gather(1, order)
        before = most.cumsum(dim=1) - most
        return (slope * (threat.eps - before).clamp_min(0).minimum(most)).sum(dim=1)
    worth, side = (w.abs() * room).sum(dim=1), int(threat.eps)
    if isinstance(threat, L0):
        return worth.flatten(1).topk(side, dim=1).values.sum(dim=1)
    squares = worth.unfold(1, side, 1).unfold(2, side, 1).sum(dim=(-1, -2))
    return squares.flatten(1).amax(dim=1)


def _with(attack: Attack, field: str, value: Any) -> Attack:
    return dataclasses.replace(attack, **{field: value})


def _gain(attack: Attack, goal: AnyGoal, x: Images, threat: Threat) -> float:
    found = attack(goal, x, threat, _source())
    with torch.no_grad():
        return (goal(found) - goal(x)).mean().item()


def _energy(world: World) -> Callable[[Images], Scores]:
    return lambda x: -world.model(x).logits.logsumexp(dim=1)


def _misleading(x: Images) -> Scores:
    """Its gradient points away from where it grows: 100 x - floor(100 x) falls at every 1/100."""
    saw: Tensor = 100 * x - (100 * x).detach().floor()
    return (saw - 100 * x.detach() * 1.1).flatten(1).sum(dim=1)


def _waves(x: Images) -> Scores:
    """Many maxima within a ball, so that the result depends on the start; separable in pixels."""
    phase = torch.arange(x[0].numel(), dtype=x.dtype, device=x.device)
    return ((1.5 + phase.cos()) * (60 * x.flatten(1) + phase).sin()).sum(dim=1)


def _source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
