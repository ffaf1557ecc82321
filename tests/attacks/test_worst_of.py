"""The suite is the worst of its parts, image by image, and stops where nothing is left to gain."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

from rood.analysis.matching import features, match
from rood.attacks import APGD, PGD, Square, WorstOf
from rood.attacks.base import Goal, in_expectation, judged, value_and_gradient
from rood.attacks.worst_of import POINTS, Stage, _rough, _Search
from rood.detectors import KNN, MSP, PRO, Ensemble, LowResolution
from rood.errors import InputError
from rood.evaluation.tasks import metered
from rood.goals import (
    accepted_and_wrong,
    both,
    flipped_and_right,
    look_in,
    look_out,
    misclassify,
    rejected,
)
from rood.models.wrap import wrap
from rood.seeds import Noise, generator
from rood.testing import toy_world
from rood.testing._support import no_trace
from rood.threat import L2, Linf, to_8_bit

WORLD = toy_world()
X = WORLD.inside[:8]
EPS = Linf(8 / 255)


def searched(goal, x=X, tier="quick", threat=EPS):
    attack = WorstOf(tier=tier)
    goal = attack.prepared(goal, x)
    return list(attack.stages(goal, x, threat, Noise(x, generator(0))))


class Counted:
    """A function of images that counts how many it was asked about."""

    def __init__(self, function):
        self.function, self.images = function, 0

    def __call__(self, x):
        self.images += len(x)
        return self.function(x)


@pytest.mark.parametrize("threat", [EPS, L2(0.5)])
def test_the_result_is_the_best_of_all_stages(threat):
    reached = searched(look_out(MSP(WORLD.model)), threat=threat)
    best = torch.stack([r.value for r in reached]).amax(dim=0)
    start = look_out(MSP(WORLD.model))(X)
    torch.testing.assert_close(reached[-1].best.value, torch.maximum(best, start))


@pytest.mark.parametrize("tier", ["quick", "standard"])
def test_no_single_part_of_it_is_stronger(tier):
    goal = look_out(MSP(WORLD.model))
    found = goal(WorstOf(tier=tier)(goal, X, EPS, generator(0)))
    for other in (PGD(steps=20), APGD(steps=20)):
        assert (found >= goal(other(goal, X, EPS, generator(0))) - 1e-4).all()


def test_an_image_that_has_passed_enough_is_left_alone():
    goal = Counted(look_out(MSP(WORLD.model)).function)
    enough = goal(X).median().item()
    goal.images = 0
    searched(Goal(goal))
    all_of_them, goal.images = goal.images, 0
    done = goal.function(X) > enough
    reached = searched(Goal(goal, enough=enough))
    assert goal.images < all_of_them
    assert torch.equal(reached[-1].best.x[done], X[done])
    assert (reached[-1].best.value > enough).all()


def test_a_goal_with_a_label_for_each_image_is_served_image_by_image():
    y = WORLD.model(X).logits.argmax(dim=1)
    goal = misclassify(WORLD.model, y)
    some = replace(goal, enough=goal(X).median().item())
    whole, part = (WorstOf(tier="quick")(g, X, Linf(0.2), generator(0)) for g in (goal, some))
    assert (goal(part) >= torch.minimum(goal(whole), torch.tensor(some.enough))).all()


def test_a_goal_without_a_gradient_is_searched_without_one():
    cut = Goal(lambda x: torch.from_numpy(MSP(WORLD.model).score_images(x).detach().numpy().copy()))
    found = WorstOf(tier="standard")(cut, X[:3], Linf(0.2), generator(0))
    assert (cut(found) > cut(X[:3])).all()


def test_a_cut_gradient_is_let_through_for_the_images_that_need_it_alone():
    msp = MSP(WORLD.model)
    first = X[0].mean()

    def half(x):
        score = msp.score_images(x)
        return torch.where(x.mean(dim=(1, 2, 3)) < first, score, score.detach() + 0 * score)

    goal = Goal(half)
    together = WorstOf(tier="quick")(goal, X.double().float(), EPS, generator(0))
    alone = torch.cat([WorstOf(tier="quick")(goal, x, EPS, generator(0)) for x in X.split(1)])
    torch.testing.assert_close(goal(together), goal(alone), atol=1e-3, rtol=1e-3)
    assert (msp.score(together) > msp.score(X)).all()


def test_an_unknown_tier_is_refused():
    attack = WorstOf()
    object.__setattr__(attack, "tier", "fast")  # as a caller without a type checker would
    with pytest.raises(InputError, match="quick, standard or full"):
        attack.__post_init__()


def test_exemplars_are_aimed_at_by_the_nearest_features_and_pixels():
    knn = KNN(WORLD.model, k=3).fit(WORLD.train)
    plain, aimed, x = look_in(knn), look_in(knn, WORLD.inside), WORLD.outside[:8]
    assert len(aimed.aim(x)) == len(plain.aim(x)) + 4
    for target in aimed.aim(x)[-4:]:
        found = APGD(steps=30)(target, x, Linf(0.1), generator(0))
        assert (target(found) > target(x)).all()


class Island(MSP):
    """A score that is 1 but for a small place around one image, with no slope elsewhere."""

    def score_images(self, x):
        far = (x - self.place).flatten(1).norm(dim=1)
        return torch.where(far < 1, far, 1.0)


def test_an_exemplar_is_found_where_no_slope_leads_to_it():
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 2))  # sees means alone
    island = Island(wrap(net))
    island.place = torch.zeros(1, 8, 8)
    island.place[:, ::2] = 1.0
    x = torch.rand(3, 1, 8, 8, generator=generator(0))
    blind, knowing = (
        WorstOf(tier="quick")(look_in(island, known), x, L2(8.0), generator(1))
        for known in (None, island.place[None])
    )
    assert (island.score(blind) == 1).all()
    assert (island.score(knowing) < 0.1).all()


def test_what_is_aimed_at_aside_is_what_it_says():
    msp, z = MSP(WORLD.model), WORLD.model(X).logits
    *classes, density, _, _, near, _ = look_in(msp, known := WORLD.inside[-9:]).aim(X)
    ranked = z.sort(dim=1, descending=True).indices
    assert len(classes) == 3
    for goal, y in zip(classes, ranked.unbind(dim=1), strict=True):
        rest = z.masked_fill(torch.arange(3) == y[:, None], -torch.inf).logsumexp(dim=1)
        torch.testing.assert_close(goal(X), z.gather(1, y[:, None])[:, 0] - rest)
    torch.testing.assert_close(density(X), z.logsumexp(dim=1))
    nearest = torch.cdist(X.flatten(1), known.flatten(1)).amin(dim=1)
    assert (near(X) <= -nearest.square() + 1e-6).all()
    away, uniform, short = look_out(msp).aim(X)
    torch.testing.assert_close(away(X), msp.score(X))
    torch.testing.assert_close(uniform(X), z.log_softmax(dim=1).mean(dim=1))
    torch.testing.assert_close(short(X), -WORLD.model(X).features.square().sum(dim=1))


@pytest.mark.slow
def test_a_network_that_sees_images_enlarged_is_aimed_at_with_them_enlarged():
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 3))  # of no other size than 16 x 16
    with torch.no_grad():
        net[1].weight.copy_(torch.randn(3, 256, generator=generator(0), dtype=torch.float32))
    model, x = wrap(net), torch.rand(4, 1, 8, 8, generator=generator(1))
    large = interpolate(x, (16, 16), mode="bilinear", align_corners=False)
    inner = LowResolution(MSP(model), size=(16, 16))
    y = torch.arange(4) % 3
    for detector in (inner, PRO(inner), Ensemble([inner, inner])):
        for goal, same in (
            (look_in(detector, x), look_in(MSP(model), large)),
            (look_out(detector), look_out(MSP(model))),
        ):
            for ours, theirs in zip(goal.aim(x), same.aim(large), strict=True):
                torch.testing.assert_close(ours(x), theirs(large))
            found = WorstOf(tier="quick")(goal, x, EPS, generator(0))
            assert (goal(found) > goal(x)).all()
        wrong = accepted_and_wrong(detector, y, threshold=1e6)
        torch.testing.assert_close(wrong(x), misclassify(model, y)(large))


def test_the_nearest_exemplars_do_not_depend_on_the_size_of_the_batch():
    """Features far from the origin, whose distances a matrix product would lose."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 2))
    with torch.no_grad():
        net[1].weight.copy_(torch.eye(64))
        net[1].bias.fill_(1000.0)
        net[2].weight.copy_(torch.stack([torch.ones(64), -torch.ones(64)]))
        net[2].bias.copy_(torch.tensor([-64032.0, 64032.0]))  # class 0 above a mean of 1/2
    msp = MSP(wrap(net))
    exemplars = torch.stack([torch.full((1, 8, 8), v) for v in (0.8, 0.3)])
    x = torch.linspace(0.5, 0.7, 40).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    goal = look_in(msp, exemplars)
    for part in (x, x[:1], x[-3:]):
        for two in (goal.aim(part)[-4:-2], goal.aim(part)[-2:]):
            nearer, farther = (g(part) for g in two)
            assert (nearer >= farther).all()


def test_matching_its_own_features_is_the_optimum():
    codes = WORLD.model(X).features.detach()
    goal = match(features(WORLD.model), codes)
    assert goal(X).abs().max() < 1e-10
    assert torch.equal(goal.take(torch.tensor([2, 5]))(X[[2, 5]]), goal(X)[[2, 5]])


def joint(name, threshold):
    y = WORLD.model(X).logits.argmax(dim=1)
    make = {"accepted_and_wrong": accepted_and_wrong, "flipped_and_right": flipped_and_right}[name]
    return make(MSP(WORLD.model), y, threshold), y


def test_an_image_that_is_accepted_and_wrong_is_both():
    msp = MSP(WORLD.model)
    threshold = msp.score(WORLD.inside).quantile(0.95).item()
    goal, y = joint("accepted_and_wrong", threshold)
    found = WorstOf(tier="quick")(goal, X, Linf(0.4), generator(0))
    won = goal(found) > 0
    assert won.any()
    assert (msp.score(found)[won] < threshold).all()
    assert (WORLD.model(found).logits.argmax(dim=1) != y)[won].all()


def test_an_image_that_is_rejected_and_right_keeps_its_class():
    msp = MSP(WORLD.model)
    threshold = msp.score(WORLD.inside).quantile(0.95).item()
    goal, y = joint("flipped_and_right", threshold)
    found = WorstOf(tier="quick")(goal, X, Linf(0.4), generator(0))
    won = goal(found) > 0
    assert won.any()
    assert (msp.score(found)[won] > threshold).all()
    assert (WORLD.model(found).logits.argmax(dim=1) == y)[won].all()


class AmongOthers(MSP):
    """Less the mean of the batch: a score that depends on the images it came with."""

    def score_outputs(self, out):
        s = super().score_outputs(out)
        return s - s.mean()


def test_a_goal_with_labels_keeps_them_and_its_company():
    """Where the batch matters each image is asked about beside the first three, label by label."""
    detector, y = AmongOthers(WORLD.model), WORLD.model(X).logits.argmax(dim=1)
    y[[0, 2, 3, 6, 7]] = (y[[0, 2, 3, 6, 7]] + 1) % 3  # wrong already, where the score decides
    goal = accepted_and_wrong(detector, y, threshold=0.0)
    prepared = WorstOf().prepared(goal, X)
    alone = [
        goal.take(torch.tensor([i, 0, 1, 2]))(torch.cat([X[i : i + 1], X[:3]]))[0]
        for i in range(len(X))
    ]
    torch.testing.assert_close(prepared(X), torch.stack(alone))
    index = torch.tensor([6, 1, 4])
    torch.testing.assert_close(prepared.take(index)(X[index]), torch.stack(alone)[index])
    again = prepared.take(index).take(torch.tensor([2, 0]))
    torch.testing.assert_close(again(X[[4, 6]]), torch.stack(alone)[[4, 6]])
    aside = prepared.variants[1].take(index)  # the labels alone
    torch.testing.assert_close(aside(X[index]), misclassify(WORLD.model, y)(X)[index])
    found = WorstOf(tier="quick")(goal, X, Linf(0.2), generator(0))
    assert (prepared(found) >= prepared(X)).all()


class Shaken(MSP):
    """A score that differs from call to call."""

    stochastic = True


@pytest.mark.parametrize(
    "around",
    [
        lambda d: d,
        PRO,
        lambda d: Ensemble([MSP(d.model), d]),
        lambda d: PRO(LowResolution(d, size=(8, 8))),
    ],
)
def test_what_is_random_inside_is_attacked_in_expectation(around):
    for base, expected in ((Shaken, True), (MSP, False)):
        detector = around(base(WORLD.model))
        for goal in (
            look_in(detector),
            look_out(detector),
            rejected(detector, 0.0),
            accepted_and_wrong(detector, torch.zeros(len(X), dtype=torch.long), 0.0),
        ):
            assert goal.stochastic is expected


def test_a_false_alarm_is_one_at_the_threshold():
    msp = MSP(WORLD.model)
    threshold = msp.score(WORLD.inside).quantile(0.95).item()
    goal = rejected(msp, threshold)
    found = WorstOf(tier="quick")(goal, X, Linf(0.2), generator(0))
    assert ((goal(found) > 0) == (msp.score(found) > threshold)).all()
    assert (goal(found) > 0).all()


def test_two_goals_at_once_are_worth_the_lesser():
    first, second = (Goal(lambda x, k=k: k * x.mean(dim=(1, 2, 3))) for k in (1.0, -1.0))
    assert torch.equal(both(first, second)(X), second(X))
    assert len(both(first, second).variants) == 3


def test_variants_are_climbed_one_by_one_along_gradients_but_not_by_who_tries_them_itself():
    aside = Goal(lambda x: x.sum(dim=(1, 2, 3)))
    goal = replace(aside, variants=(aside,))
    assert APGD().aims(goal) == (goal, aside)
    assert Square().aims(goal) == WorstOf().aims(goal) == (goal,)


class Backwards:
    """The goal of a network's energy, and how many gradients per image were asked of it."""

    def __init__(self):
        self.count = 0

    def __call__(self, x):
        self.count += len(x) * x.requires_grad
        return -WORLD.model(x).logits.logsumexp(dim=1)


def test_standard_needs_a_twentieth_of_five_runs_of_a_thousand_steps():
    goal = Backwards()
    aims = tuple(Goal(goal) for _ in range(13))  # ten classes, the energy and two exemplars
    WorstOf()(Goal(goal, aim=lambda x: aims), X, EPS, generator(0))
    assert goal.count / len(X) <= 0.05 * 5 * 1000


def test_standard_needs_no_more_for_a_detector_with_surrogates():
    knn = KNN(WORLD.model, k=5).fit([WORLD.inside])
    sides = look_out(knn), look_in(knn, WORLD.inside)
    assert all(goal.variants for goal in sides)
    spent = []
    for goal in sides:
        with metered(WORLD.model) as cost:
            WorstOf()(goal, X, EPS, generator(0))
        spent.append(cost.backwards / len(X))
    assert sum(spent) / 2 <= 0.05 * 5 * 1000


@pytest.mark.parametrize(
    ("function", "gains"),
    [
        (lambda x: (x + 1e-3 * (3e3 * x).sin()).sum(dim=(1, 2, 3)), True),  # too fine for a step
        (lambda x: (2 * x.detach() - x).sum(dim=(1, 2, 3)), False),  # the wrong way everywhere
    ],
)
def test_gradients_are_averaged_again_only_where_that_gained(function, gains):
    counted = Counted(function)
    search = _Search(Goal(counted), X, EPS, Noise(X, generator(0)))
    before, counted.images = search.best.value.clone(), 0
    search.run(0, Stage("averaged", "averaged", APGD(steps=5, random_start=False), rounds=4))
    assert (search.best.value > before).tolist() == [gains] * len(X)
    rounds = counted.images / (2 * 5 * POINTS * len(X))  # from two starts
    assert (rounds > 1.9) if gains else (rounds < 1.5)


def test_few_related_goals_get_more_steps_each():
    few, many = Backwards(), Backwards()
    for counted, n in ((few, 3), (many, 9)):
        aims = tuple(Goal(counted) for _ in range(n))
        WorstOf(tier="quick")(
            Goal(lambda x: x.mean(dim=(1, 2, 3)), aim=lambda x, a=aims: a), X, EPS, generator(0)
        )
    assert few.count == many.count == len(X) * 45


LEVELS = (255 * X).round() / 255


def off_the_grid(x):
    """1 for each image that is not of whole levels."""
    return ((255 * x).round() - 255 * x).abs().flatten(1).amax(dim=1) > 1e-3


def test_points_of_whole_levels_are_found_where_no_other_point_moves_the_score():
    msp = MSP(WORLD.model)
    start = msp.score(LEVELS).detach()
    frozen = Goal(
        lambda x: torch.where(off_the_grid(x), start[: len(x)] + 0 * x.sum(), msp.score(x)),
        aim=look_out(msp).aim,
    )
    found = WorstOf(tier="quick")(frozen, LEVELS, EPS, generator(0))
    assert not off_the_grid(found).any()
    assert (msp.score(found) > start).all()


def test_an_image_is_done_only_when_its_8_bit_version_is():
    goal = look_out(MSP(WORLD.model))
    reachable = goal(WorstOf()(goal, LEVELS, EPS, generator(0)))
    enough = (0.5 * goal(LEVELS) + 0.5 * reachable).min().item()
    found = WorstOf(tier="quick")(replace(goal, enough=enough), LEVELS, EPS, generator(0))
    rounded = to_8_bit(found, LEVELS, EPS)
    assert (goal(rounded) > enough).all()


def test_gradients_are_averaged_only_where_they_do_not_foretell_the_goal():
    smooth = look_out(MSP(WORLD.model))
    ripple = Goal(lambda x: smooth(x + 4e-6 * (1e6 * x).sin()))
    assert not _rough(smooth, X, EPS).any()
    assert _rough(ripple, X, EPS).all()


class Noisy(MSP):
    """MSP of an image with noise from torch's own generator."""

    stochastic = True

    def score_outputs(self, out):
        noise = torch.randn(out.logits.shape[0], dtype=out.logits.dtype)
        return super().score_outputs(out) + noise


def test_a_stochastic_goal_is_searched_and_judged_by_common_random_numbers():
    goal = look_out(Noisy(WORLD.model))
    with no_trace("the goal"):
        searched_by, judged_by = in_expectation(goal), judged(goal)
        assert torch.equal(searched_by(X), searched_by(X))
        assert torch.equal(judged_by(X), judged_by(X))
    assert not torch.equal(searched_by(X), judged_by(X))  # other draws
    _, gradient = value_and_gradient(searched_by, X)
    _, honest = value_and_gradient(look_out(MSP(WORLD.model)), X)
    torch.testing.assert_close(gradient, honest)  # the noise has none


@pytest.mark.parametrize("attack", [PGD(steps=10), APGD(steps=10), WorstOf(tier="quick")])
def test_noise_does_not_stop_an_attack(attack):
    noisy, honest = look_out(Noisy(WORLD.model)), look_out(MSP(WORLD.model))
    found, wanted = (attack(g, X, Linf(0.1), generator(0)) for g in (noisy, honest))
    gained, most = (honest(x) - honest(X) for x in (found, wanted))
    assert (gained >= 0.9 * most).all()
