"""How robust objectives search: where they start, in which mode; what they mine and refuse."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from toy_objectives import ATTACK, batch, drawn, in_training

from rood.detectors import Detector, Energy, UniformCrossEntropy
from rood.errors import InputError
from rood.models.wrap import wrap
from rood.numerics.softmax import uniform_cross_entropy
from rood.testing import objective_checks
from rood.testing._support import example
from rood.training import objectives
from rood.training.objectives import ADV, ALOE, AOE, TRADES, CrossEntropy, EnergyOE, Objective
from rood.training.objectives.atom import ATOM, taken_in
from rood.training.objectives.robust import Robust, hardest

ROBUST = [ADV, AOE, ALOE, TRADES, ATOM]


@pytest.mark.parametrize("cls", ROBUST)
def test_the_inner_attack_starts_at_random_in_the_whole_ball(
    cls: type[Robust], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first search pass sees, less the image: even in [-eps, eps], new at each draw."""
    model, given, objective = in_training(), batch(), cls(**ATTACK)
    grey = given._replace(x=0.3 + 0.4 * given.x, outliers=0.3 + 0.4 * given.outliers)
    seen: list[Tensor] = []
    inner = Robust.worst

    def first_pass(self, model, losses, x, generator):
        passes: list[Tensor] = []
        with monkeypatch.context() as patched:
            own = model.forward
            patched.setattr(model, "forward", lambda x: passes.append(x.detach()) or own(x))
            found = inner(self, model, losses, x, generator)
        seen.append((passes[0] - x) / self.eps)
        return found

    monkeypatch.setattr(Robust, "worst", first_pass)
    for seed in (0, 1):
        objective.loss(model, grey, drawn(seed))
    first, second = seen
    assert first.abs().max() <= 1 + 1e-5
    assert (first - second).abs().flatten(1).amax(dim=1).min() > 0.5
    assert (first[0] - first[1]).abs().max() > 0.5  # two images start otherwise
    assert first.mean().abs() < 0.2
    assert first.std() == pytest.approx(3**-0.5, rel=0.1)


@pytest.mark.parametrize("cls", ROBUST)
@pytest.mark.parametrize("bn", ["eval", "train"])
def test_the_statistics_move_as_often_as_the_objective_says(cls: type[Robust], bn: str) -> None:
    model, objective = in_training(), cls(**ATTACK, bn=bn)
    modes = [m.training for m in model.modules()]
    objective.loss(model, batch(), drawn(0))
    assert [m.training for m in model.modules()] == modes
    (count,) = {
        int(m.num_batches_tracked) for m in model.modules() if isinstance(m, nn.BatchNorm2d)
    }
    assert count == objective.batch_norm_updates
    extra = {"aloe": 6, "trades": 4}.get(objective.name, 3)
    assert count == 1 + (extra if bn == "train" else 0)


def test_in_train_mode_the_two_parts_of_aloe_are_attacked_apart() -> None:
    """As in the official code: the outliers do not show in the statistics of the images."""
    sizes: list[int] = []

    class Counts(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            return super().forward(x)

    net = nn.Sequential(nn.Conv2d(1, 2, 3), Counts(2), nn.Flatten(), nn.Linear(72, 3))
    model = wrap(net)
    model(batch().x)
    model.train().requires_grad_()
    sizes.clear()
    ALOE(**ATTACK, bn="train").loss(model, batch(), drawn(0))
    assert sizes == [6] * 3 + [16] * 3 + [22]
    sizes.clear()
    ALOE(**ATTACK).loss(model, batch(), drawn(0))
    assert sizes == [22] * 4


@pytest.mark.parametrize("cls", ROBUST)
def test_with_polluted_statistics_it_still_keeps_the_contract(cls: type[Robust], world) -> None:
    factory = partial(cls, bn="train")
    for check in objective_checks(factory):
        check(factory, world.copy())


@pytest.mark.parametrize("name", objectives.registry.names())
def test_under_autocast_the_gradient_still_reaches_every_parameter(name: str) -> None:
    """Autocast keeps its copies of the weights; one made without a gradient would be used again."""
    objective = example(objectives.registry.get(name))()
    made = getattr(objective, "example_model", lambda model: model)(in_training())
    model = made.train().requires_grad_()
    model(batch().x)
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective.loss(model, batch(), drawn(0))
    assert loss.dtype == torch.float32
    for key, p in model.named_parameters():
        (g,) = torch.autograd.grad(loss, p, allow_unused=True, retain_graph=True)
        assert g is not None, key
        assert g.isfinite().all(), key


@pytest.mark.parametrize(
    ("losses", "score"), [(taken_in, Energy), (uniform_cross_entropy, UniformCrossEntropy)]
)
def test_mined_are_the_hardest_but_the_very_hardest(
    losses: Callable[[Tensor], Tensor], score: type[Detector]
) -> None:
    model, outliers = in_training(), batch(outliers=40).outliers
    assert outliers is not None
    mined = hardest(model, outliers, losses, keep=0.3, skip=0.1)
    assert model.training
    assert len(mined) == 12
    by_score = score(model.eval()).score(outliers).argsort()  # lowest first: taken for inside
    assert torch.equal(mined, outliers[by_score[4:16]])


@pytest.mark.parametrize(("outliers", "count"), [(1, 1), (2, 1), (3, 1), (8, 2)])
def test_the_smallest_pool_is_mined(outliers: int, count: int) -> None:
    model, given = in_training(), batch(outliers=outliers)
    assert given.outliers is not None
    assert len(hardest(model, given.outliers, taken_in, keep=0.25, skip=0.125)) == count
    for objective in (ATOM(keep=0.5, skip=0.5), ALOE(keep=0.5, skip=0.5)):
        assert objective.loss(model, given, drawn(0)).isfinite()


def test_aloe_that_mines_is_aloe_of_the_mined() -> None:
    given = batch(outliers=16)
    assert given.outliers is not None
    mined = hardest(in_training(), given.outliers, uniform_cross_entropy, keep=0.25, skip=0.125)
    loss = ALOE(**ATTACK, keep=0.25, skip=0.125).loss(in_training(), given, drawn(0))
    expected = ALOE(**ATTACK).loss(in_training(), given._replace(outliers=mined), drawn(0))
    assert torch.equal(loss, expected)
    assert not torch.equal(loss, ALOE(**ATTACK).loss(in_training(), given, drawn(0)))


def test_the_outlier_class_of_atom_loses_nothing() -> None:
    """A head with one more output is the same function: less its last row, the others tell all."""
    z = torch.randn(5, 4, generator=drawn(3), dtype=torch.float64)
    reduced = z[:, :3] - z[:, 3:]
    p = torch.cat([reduced, torch.zeros(5, 1)], dim=1).softmax(dim=1)
    torch.testing.assert_close(p, z.softmax(dim=1))
    assert torch.equal(p[:, 3].argsort(), (-reduced.logsumexp(dim=1)).argsort())


def test_trades_raises_the_divergence_and_adv_the_error() -> None:
    model, given = in_training().eval(), batch()
    small = [c(eps=0.0).loss(model, given, drawn(0)).item() for c in (ADV, TRADES)]
    large = [c(**ATTACK).loss(model, given, drawn(0)).item() for c in (ADV, TRADES)]
    assert small[0] == pytest.approx(small[1], rel=1e-5)  # no budget: cross-entropy alone
    assert all(b > a + 0.01 for a, b in zip(small, large, strict=True))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: TRADES(beta=-1), "beta >= 0"),
        (lambda: EnergyOE(weight=-1), "weight >= 0"),
        (lambda: EnergyOE(m_in=0, m_out=-1), "m_in <= m_out"),
        (lambda: ATOM(keep=0), "keep > 0"),
        (lambda: ATOM(keep=0.8, skip=0.3), r"keep \+ skip <= 1"),
        (lambda: ALOE(keep=0.8, skip=0.3), r"keep \+ skip <= 1"),
        (lambda: ATOM(weight=math.nan), "weight >= 0"),
        (lambda: CrossEntropy(smoothing=1.0), "smoothing < 1"),
    ],
)
def test_settings_that_make_no_objective_are_refused(
    make: Callable[[], Objective], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        make()
