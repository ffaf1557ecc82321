"""MC dropout against plain loops; what its masks are."""

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr

from rood.detectors import MSP, MCDropout
from rood.errors import InputError


def test_mc_dropout_is_the_margin_of_the_mean_softmax(double, x, features):
    d = MCDropout(double.model, draws=8).fit(double.train)
    weight, bias = ref.head_of(double)
    want, paper = [], []
    for f in features:
        p = np.mean([ref.softmax(weight @ (f * m) + bias) for m in d.masks_.numpy()], axis=0)
        want.append(ref.margin(np.log(p)))
        paper.append(-max(p))
    s = d.score(x)
    close(s, want, rtol=1e-8)
    assert spearmanr(s, paper).statistic == pytest.approx(1, abs=1e-12)


def test_masks_drop_the_stated_share_and_keep_the_expectation(double):
    masks = MCDropout(double.model, draws=20_000, rate=0.3).fit(double.train).masks_
    assert set(masks.unique().tolist()) == {0.0, 1 / 0.7}
    assert float((masks == 0).double().mean()) == pytest.approx(0.3, abs=0.005)
    assert masks.mean(dim=0).sub(1).abs().max() < 0.03


def test_masks_follow_the_seed_alone(double):
    first, again, other = (
        MCDropout(double.model, seed=s).fit(double.train).masks_ for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_hardly_any_dropout_is_msp(double, x):
    d = MCDropout(double.model, draws=1, rate=1e-9).fit(double.train)
    close(d.score(x), MSP(double.model).score(x).numpy(), rtol=1e-6)


def test_a_rate_that_drops_everything_is_refused(double):
    with pytest.raises(InputError, match="a rate between 0 and 1"):
        MCDropout(double.model, rate=1.0)
