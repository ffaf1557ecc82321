"""Attacks with one fault each."""

import torch

from rood.attacks.base import Attack, Best, value_and_gradient
from rood.attacks.pgd import PGD


class LeavesTheBall(PGD):
    def __call__(self, goal, x, threat, generator):
        _, gradient = value_and_gradient(goal, x)
        return (x + 2 * threat.eps * threat.ascent(gradient) + 1e-3).clamp(0, 1)


class LeavesTheBox(PGD):
    def __call__(self, goal, x, threat, generator):
        _, gradient = value_and_gradient(goal, x)
        return x + threat.eps * threat.ascent(gradient)


class LastIterate(PGD):
    def __call__(self, goal, x, threat, generator):
        _, gradient = value_and_gradient(goal, x)
        return threat.project(x + threat.eps * threat.ascent(gradient), x)


class GlobalRandomness(PGD):
    def climb(self, goal, x, threat, noise):
        start = threat.project(x + threat.eps * (2 * torch.rand_like(x) - 1), x)
        return super().climb(goal, start, threat, noise)


class GradientNormalisedOverTheBatch(PGD):
    def climb(self, goal, x, threat, noise):
        x_t = x
        for _ in range(self.steps):
            _, gradient = value_and_gradient(goal, x_t)
            x_t = threat.project(x_t + threat.eps / 8 * gradient / (1e-9 + gradient.norm()), x)
        return x_t


class OneNoiseForTheBatch(PGD):
    def climb(self, goal, x, threat, noise):
        return super().climb(goal, x, threat, noise.select(torch.zeros(len(x), dtype=torch.long)))


class IgnoresEps(PGD):
    def climb(self, goal, x, threat, noise):
        return super().climb(goal, x, type(threat)(min(threat.eps, 1 / 255)), noise)


class ShrinksAsEpsGrows(PGD):
    def climb(self, goal, x, threat, noise):
        return super().climb(goal, x, type(threat)(1e-4 / max(threat.eps, 1e-4)), noise)


class TakesNaNForBetter(Attack):
    def __call__(self, goal, x, threat, generator):
        _, gradient = value_and_gradient(goal, x)
        found = threat.project(x + threat.eps * threat.ascent(gradient), x)
        with torch.no_grad():
            worse = goal(found) <= goal(x)
        return torch.where(worse.view(-1, 1, 1, 1), x, found)

    def climb(self, goal, x, threat, noise):
        return x


class AsksTwice(PGD):
    def climb(self, goal, x, threat, noise):
        return super().climb(lambda x: (goal(x) + goal(x)) / 2, x, threat, noise)


class ClimbsWhereAutogradIsOff(PGD):
    def __call__(self, goal, x, threat, generator):
        best = Best(x)
        value, gradient = value_and_gradient(goal, x)
        best.offer(x, value)
        found = threat.project(x + threat.eps * threat.ascent(gradient), x)
        best.offer(found, goal(found))
        return best.x


class SpoilsItsInput(PGD):
    def climb(self, goal, x, threat, noise):
        x.mul_(0.9)
        return x


class TakesAnything(PGD):
    def __call__(self, goal, x, threat, generator):
        return x


class NeedsAnImageToAttack(PGD):
    def __call__(self, goal, x, threat, generator):
        return x / x.max()


class StaysAtHome(PGD):
    def climb(self, goal, x, threat, noise):
        return x


class NaNOnAFlatGoal(PGD):
    def __call__(self, goal, x, threat, generator):
        _, g = value_and_gradient(goal, x)
        return threat.project(x + threat.eps * g / g.flatten(1).norm(dim=1).view(-1, 1, 1, 1), x)
