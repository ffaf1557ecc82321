"""Ensembles of detectors and of networks."""

import copy
import math

import numpy as np
import pytest
import references as ref
import torch
from references import close
from torch import nn
from toy_training import new_model, toy

from rood.analysis.matching import attack_pairs, ensemble_logits, noise_starts
from rood.attacks import FeatureMatch
from rood.detectors import (
    DeepEnsemble,
    Energy,
    Ensemble,
    Entropy,
    Mahalanobis,
)
from rood.errors import InputError
from rood.metrics import auroc
from rood.models.wrap import wrap
from rood.threat import L2
from rood.training.loop import train
from rood.training.objectives.deep_ensemble import DeepEnsemble as EnsembleObjective
from rood.training.settings import Settings


def test_an_ensemble_of_one_is_its_member(double, x):
    member = Mahalanobis(double.model)
    raw = Ensemble([member]).fit(double.train)
    close(raw.score(x), member.score(x).numpy(), rtol=1e-12)
    normal = Ensemble([member], scale="normal").fit(double.train)
    seen = np.concatenate([member.score(b).numpy() for b, _ in double.train])
    close(normal.score(x), (member.score(x).numpy() - seen.mean()) / seen.std(ddof=1), rtol=1e-9)


def test_an_ensemble_averages_members_on_different_networks(double, x):
    other = copy.deepcopy(double.model)
    other.net[0].weight.data.mul_(0.5)
    a, b = Mahalanobis(double.model), Mahalanobis(other)
    e = Ensemble([a, b, Energy(other)]).fit(double.train)
    alone = Mahalanobis(other).fit(double.train)
    close(b.score(x), alone.score(x).numpy(), rtol=1e-12)
    parts = [d.score(x).numpy() for d in (a, alone, Energy(other))]
    close(e.score(x), sum(parts) / 3, rtol=1e-12)
    assert e.cost() == (3, 0)
    state = Ensemble([Mahalanobis(double.model), Mahalanobis(other), Energy(other)])
    assert torch.equal(state.load_fitted(e.fitted_state()).score(x), e.score(x))


def test_an_ensemble_to_be_scaled_refuses_batches_that_are_used_up(world):
    with pytest.raises(InputError, match="iterated twice"):
        Ensemble([Mahalanobis(world.model)], scale="normal").fit(b for b in world.train)


def test_a_deep_ensemble_of_copies_is_the_entropy(double, x):
    copies = [copy.deepcopy(double.model) for _ in range(4)]
    close(DeepEnsemble(copies).score(x), Entropy(double.model).score(x).numpy(), rtol=1e-9)


def test_a_deep_ensemble_is_the_entropy_of_the_mean_softmax(double, x):
    other = copy.deepcopy(double.model)
    other.net[0].weight.data.mul_(0.5)
    want = []
    for a, b in zip(ref.logits_of(double.model, x), ref.logits_of(other, x), strict=True):
        p = [(u + v) / 2 for u, v in zip(ref.softmax(a), ref.softmax(b), strict=True)]
        want.append(ref.entropy_log_odds([math.log(v) for v in p]))
    close(DeepEnsemble([double.model, other]).score(x), want, rtol=1e-8)


def test_ensembles_refuse_nothing_and_networks_of_other_classes(world):
    with pytest.raises(InputError, match="at least one detector"):
        Ensemble([])
    with pytest.raises(InputError, match="at least one network"):
        DeepEnsemble([])
    other = wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
    with pytest.raises(InputError, match="same classes"):
        DeepEnsemble([world.model, other])


def test_members_differ_by_their_seed_and_are_attacked_through_all_their_logits() -> None:
    """Matching every member's logits matches the entropy of their mean: the scores tie."""
    members = []
    for seed in range(2):
        model = new_model(seed)
        settings = Settings(epochs=4, batch_size=30, lr=0.05, seed=seed)
        list(train(model, EnsembleObjective(), toy(), settings=settings))
        members.append(model)
    x = toy(18, 1).pixels()
    assert not torch.equal(members[0](x).logits, members[1](x).logits)
    detector, starts = DeepEnsemble(members), noise_starts(x)
    clean = auroc(inside=detector.score(x), outside=detector.score(starts))
    found = attack_pairs(ensemble_logits(members), x, starts, FeatureMatch(), L2(4.0))
    assert np.median(found.mape) < 0.01
    assert abs(found.auroc(detector.score) - 0.5) < min(0.1, abs(clean - 0.5))
