"""The suite is the worst of its parts, image by image, and stops where nothing is left to gain."""

from dataclasses import replace

import pytest
import torch

from rood.attacks import APGD, PGD, WorstOf
from rood.attacks.base import Goal
from rood.detectors import KNN, MSP
from rood.errors import InputError
from rood.goals import (
    accepted_and_wrong,
    both,
    flipped_and_right,
    look_in,
    look_out,
    misclassify,
    rejected,
)
from rood.matching import features, match
from rood.seeds import Noise, generator
from rood.testing import toy_world
from rood.threat import L2, Linf

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
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    assert (msp.score(together) > msp.score(X)).all()


def test_an_unknown_tier_is_refused():
    attack = WorstOf()
    object.__setattr__(attack, "tier", "fast")  # as a caller without a type checker would
    with pytest.raises(InputError, match="quick, standard or full"):
        attack.__post_init__()


def test_exemplars_are_aimed_at_by_the_nearest_features():
    knn = KNN(WORLD.model, k=3).fit(WORLD.train)
    plain, aimed, x = look_in(knn), look_in(knn, WORLD.inside), WORLD.outside[:8]
    assert len(aimed.aim(x)) == len(plain.aim(x)) + 2
    target = aimed.aim(x)[-2]
    found = APGD(steps=30)(target, x, Linf(0.1), generator(0))
    assert (target(found) > target(x)).all()


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
