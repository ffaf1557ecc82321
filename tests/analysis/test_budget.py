"""The smallest budget that flips a decision, and AUROC as budgets grow."""

import itertools

import pytest
import torch
from refusals import refused
from torch import nn

from rood import data
from rood.analysis.budget import auroc_against_eps, minimal_eps
from rood.attacks import APGD, PGD, RandomSearch
from rood.detectors import KNN, MSP, Detector, MaxLogit
from rood.errors import InputError, UnknownNameError
from rood.goals import look_in, look_out
from rood.metrics import auroc, threshold_at_tpr
from rood.models import zoo
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import NORMS, Linf

SIDES = ("inside", "outside", "both")


class Linear(Detector):
    """s(x) = <w, x>, as far from a network as can be."""

    def __init__(self, model, w):
        super().__init__(model)
        self.w = w

    def score_images(self, x):
        return (x * self.w).flatten(1).sum(dim=1)


class Flat(Linear):
    """A score that no pixel moves."""

    def score_images(self, x):
        return 0 * super().score_images(x)


@pytest.fixture(scope="module")
def line():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
    w = torch.randn(3, 8, 8, generator=generator(0, "w"))
    return Linear(wrap(net, mean=(0.5,) * 3, std=(0.2,) * 3), w)


@pytest.fixture(scope="module")
def interior():
    return 0.4 + 0.2 * torch.rand(6, 3, 8, 8, generator=generator(0, "x"))


@pytest.fixture(scope="module")
def digits():
    """A network of the zoo, images of both sides and its threshold."""
    detector = MSP(zoo.load("digits-ce"))
    inside = data.load("digits:inside", limit=200).pixels()
    with torch.no_grad():
        threshold = threshold_at_tpr(detector.score(inside))
    return (
        detector,
        {"look_in": data.load("digits:near", limit=6).pixels()} | {"look_out": inside[::34]},
        threshold,
    )


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
@pytest.mark.parametrize("direction", ["look_in", "look_out"])
def test_a_linear_score_has_the_closed_form(line, interior, norm, dual, direction):
    scores = line.score(interior)
    gap = torch.linspace(0.5, 4, len(interior))
    for i, x in enumerate(interior.split(1)):
        sign = -1 if direction == "look_in" else 1
        threshold = float(scores[i] + sign * gap[i])
        found = minimal_eps(line, x, threshold, direction, norm=norm)
        exact = gap[i] / line.w.flatten().norm(p=dual)
        assert exact * (1 - 1e-4) <= found.item() <= exact * 1.02


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
def test_pixels_at_the_border_of_the_box_cost_nothing(line, interior, norm, dual):
    """They cannot go where the score wants them: the closed form is that of all others."""
    stuck = torch.rand(line.w.shape, generator=generator(0, "stuck")) < 0.7
    x = torch.where(stuck, (line.w < 0).float(), interior)  # look_in pushes against the weights
    x = torch.where(stuck & (line.w == 0), interior, x)[:1]
    exact = 1.0 / line.w[~stuck].norm(p=dual)
    assert (x[0][stuck] == (line.w[stuck] < 0)).all()
    found = minimal_eps(line, x, float(line.score(x)) - 1.0, "look_in", norm=norm)
    assert exact * (1 - 1e-4) <= found.item() <= exact * 1.02


def test_a_dozen_steps_are_enough_where_the_score_is_a_line(line, interior):
    threshold = float(line.score(interior).min()) - 3
    found = minimal_eps(line, interior, threshold, "look_in", steps=12)
    exact = (line.score(interior) - threshold) / line.w.abs().sum()
    torch.testing.assert_close(found, exact, rtol=0.1, atol=0)


def test_an_image_whose_decision_is_the_wanted_one_already_needs_nothing(line, interior):
    scores = line.score(interior)
    threshold = float(scores.median())
    hidden = minimal_eps(line, interior, threshold, "look_in", steps=20)
    raised = minimal_eps(line, interior, threshold, "look_out", steps=20)
    assert ((hidden == 0) == (scores <= threshold)).all()
    assert ((raised == 0) == (scores > threshold)).all()


def test_where_nothing_flips_the_answer_is_infinite(line, interior):
    flat = Flat(line.model, line.w)
    assert minimal_eps(flat, interior, -1.0, "look_in", steps=5).isinf().all()
    assert minimal_eps(line, interior, -1e6, "look_in", steps=30).isinf().all()


@pytest.mark.parametrize(("norm", "direction"), [("linf", "look_in"), ("l2", "look_out")])
def test_it_agrees_with_bisection_over_pgd(digits, norm, direction):
    detector, images, threshold = digits
    x = images[direction]
    found = minimal_eps(detector, x, threshold, direction, norm=norm)
    reference = bisected(detector, x, threshold, direction, norm, 2 * found)
    assert ((found == 0) == (reference == 0)).all()
    ratio = (found / reference)[reference > 0]
    assert len(ratio) >= 4
    assert 0.9 < ratio.median() < 1.03
    assert ratio.max() < 1.05


def bisected(detector, x, threshold, direction, norm, most):
    goal = {"look_in": look_in, "look_out": look_out}[direction](detector)
    wanted = -threshold if direction == "look_in" else threshold
    attack = PGD(steps=20, random_start=False)
    found = []
    for image, high in zip(x.split(1), most.tolist(), strict=True):
        low = 0.0
        for _ in range(6):
            eps = (low + high) / 2
            reached = attack(goal, image, NORMS[norm](eps), generator(0, "bisect"))
            low, high = (low, eps) if goal(reached) > wanted else (eps, high)
        found.append(0.0 if goal(image) > wanted else high)
    return torch.tensor(found)


def test_more_steps_need_no_more(digits):
    detector, images, threshold = digits
    few, many = (
        minimal_eps(detector, images["look_out"], threshold, "look_out", steps=s) for s in (8, 80)
    )
    assert (many <= 1.01 * few).all()


def test_a_lower_threshold_needs_more(digits):
    detector, images, threshold = digits
    eps = [
        minimal_eps(detector, images["look_in"], threshold - by, "look_in", steps=60)
        for by in (0, 1, 2)
    ]
    for near, far in itertools.pairwise(eps):
        assert (far > near).all() or (far[near > 0] > near[near > 0]).all()


def test_each_image_is_searched_on_its_own(world):
    detector = MSP(world.model)
    threshold = float(detector.score(world.inside).median())
    x = world.outside[:6]
    together = minimal_eps(detector, x, threshold, "look_in", steps=30)
    turned = minimal_eps(detector, x.flip(0), threshold, "look_in", steps=30).flip(0)
    alone = torch.cat(
        [minimal_eps(detector, v, threshold, "look_in", steps=30) for v in x.split(1)]
    )
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=0)
    torch.testing.assert_close(together, turned, rtol=1e-3, atol=0)


def test_a_search_that_lies_is_found_out(world, monkeypatch):
    from rood.analysis import budget

    monkeypatch.setattr(
        budget._Search, "run", lambda self, x, steps: (torch.full((len(x),), 0.01), x)
    )
    detector = MSP(world.model)
    threshold = float(detector.score(world.outside).min()) - 1
    assert minimal_eps(detector, world.outside, threshold, "look_in").isinf().all()


def test_it_works_under_no_grad_and_leaves_the_images_alone(world):
    detector = KNN(world.model, k=5).fit(world.train)
    threshold = float(threshold_at_tpr(detector.score(world.inside)))
    before = world.outside.clone()
    with torch.inference_mode():
        eps = minimal_eps(detector, world.outside, threshold, "look_in", steps=30)
    assert (eps > 0).all()
    assert torch.equal(world.outside, before)


def test_wrong_words_are_refused(line, interior):
    with pytest.raises(UnknownNameError, match="no norm is called 'l7'"):
        minimal_eps(line, interior, 0.0, "look_in", norm="l7")
    refused(InputError, "steps >= 1", minimal_eps, line, interior, 0.0, "look_in", steps=0)
    refused(InputError, "at least one eps", auroc_against_eps, line, interior, interior, [])


@pytest.fixture(scope="module")
def curve():
    from rood.testing import toy_world

    world = toy_world()
    detector = MaxLogit(world.model)
    epsilons = [0.06, 0.01, 0.03, 0.02, 0.1]
    x_in, x_out = world.inside[:30], world.outside[:40]
    return (
        detector,
        x_in,
        x_out,
        auroc_against_eps(detector, x_in, x_out, epsilons, attack=APGD(steps=8)),
    )


def test_the_curve_begins_clean_and_never_rises(curve):
    detector, x_in, x_out, found = curve
    assert [t.eps for t in found.threats] == [0.0, 0.01, 0.02, 0.03, 0.06, 0.1]
    clean = auroc(inside=detector.score(x_in), outside=detector.score(x_out))
    for side in SIDES:
        values = [i.value for i in found.auroc[side]]
        assert values[0] == pytest.approx(clean)
        assert all(b <= a for a, b in itertools.pairwise(values))
        assert values[-1] < values[0]
        assert all(0 <= i.low <= i.value <= i.high <= 1 for i in found.auroc[side])
    assert (found.inside.diff(dim=0) >= 0).all()
    assert (found.outside.diff(dim=0) <= 0).all()
    scores = {"inside": (-1, 0), "outside": (0, -1), "both": (-1, -1)}
    for side, (i, j) in scores.items():
        value = auroc(inside=found.inside[i], outside=found.outside[j])
        assert found.auroc[side][-1].value == value
    for both, one, other in zip(*(found.auroc[s] for s in reversed(SIDES)), strict=True):
        assert both.value <= min(one.value, other.value)


def test_the_curve_is_as_strong_as_attacks_from_scratch(curve):
    detector, _, x_out, found = curve
    attack = APGD(steps=24)
    for i, threat in enumerate(found.threats[1:], start=1):
        alone = attack(look_in(detector), x_out, threat, generator(0, "alone"))
        scores = detector.score(alone)
        assert found.outside[i].mean() <= scores.mean() + 0.02 * (scores - found.outside[0]).std()


def test_the_curve_does_not_depend_on_the_batch(curve):
    detector, x_in, x_out, found = curve
    again = auroc_against_eps(
        detector, x_in, x_out, [0.01, 0.02, 0.03, 0.06, 0.1], attack=APGD(steps=8), batch_size=7
    )
    torch.testing.assert_close(again.outside, found.outside, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(again.inside, found.inside, rtol=1e-3, atol=1e-3)


def test_an_attack_that_forgets_its_start_cannot_make_the_curve_rise(curve):
    """Two random points may be worse than two of the smaller ball: what that gave is kept."""
    detector, x_in, x_out, _ = curve
    blind = RandomSearch(queries=2)
    found = auroc_against_eps(detector, x_in, x_out, [0.01, 0.011, 0.012], attack=blind)
    assert (found.outside.diff(dim=0) <= 0).all()
    assert isinstance(found.threats[1], Linf)
