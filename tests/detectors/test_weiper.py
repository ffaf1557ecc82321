"""WeiPer against plain loops; its densities against histograms."""

import math

import numpy as np
import references as ref
import torch
from references import close

from rood.detectors import WeiPer
from rood.detectors.weiper import density, smoothed


def split_histogram(values, low, high, bins):
    """Shares of the values, each split between the bins whose centres are nearest."""
    found = [0.0] * bins
    for v in values:
        place = min(max(bins * (v - low) / (high - low) - 0.5, 0), bins - 1)
        left = min(int(place), bins - 2)
        found[left] += (left + 1 - place) / len(values)
        found[left + 1] += (place - left) / len(values)
    return found


def box(q, width):
    before = (width - 1) // 2
    at = lambda i: q[min(max(i, 0), len(q) - 1)]
    return [sum(at(i - before + j) for j in range(width)) / width for i in range(len(q))]


def symmetric_divergence(p, q, floor):
    p, q = ([v + floor for v in d] for d in (p, q))
    p, q = ([v / sum(d) for v in d] for d in (p, q))
    kl = lambda a, b: sum(u * math.log(u / v) for u, v in zip(a, b, strict=True))
    return kl(p, q) + kl(q, p)


def test_weiper_equals_its_reference(double, queries, training):
    x, _, q = queries
    f = training[0]
    weight, bias = ref.head_of(double)
    d = WeiPer(double.model, heads=5, bins=30, width_logits=6).fit(double.train)
    heads = [weight + e for e in d.noise_.numpy()]
    logits = lambda v: [w @ v + bias for w in heads]
    views = [lambda v: v, lambda v: np.concatenate(logits(v))]
    want = np.zeros(len(q))
    for view, factor, width, floor in zip(views, (1, 2.5), (4, 6), (0.01, 0.025), strict=True):
        seen = [view(v) for v in f]
        low, high = min(map(min, seen)), max(map(max, seen))
        mean = np.mean([split_histogram(v, low, high, 30) for v in seen], axis=0)
        own = [box(split_histogram(view(v), low, high, 30), width) for v in q]
        want += [factor * symmetric_divergence(mean, o, floor) for o in own]
    want -= [0.1 * np.mean([max(ref.softmax(z)) for z in logits(v)]) for v in q]
    close(d.score(x), want, rtol=1e-8)


def test_noise_has_the_stated_length(double):
    d = WeiPer(double.model, heads=7, distance=1.8).fit(double.train)
    lengths = d.noise_.norm(dim=2) / double.model.head.weight.norm(dim=1)
    np.testing.assert_allclose(lengths.numpy(), 1.8, rtol=1e-9)


def test_a_density_sums_to_one_and_is_the_histogram_at_the_centres_of_the_bins():
    centres = (torch.arange(10) + 0.5)[None].double() / 10
    got = density(centres, torch.tensor(0.0), torch.tensor(1.0), 10)
    close(got, np.full((1, 10), 0.1), rtol=1e-12)
    outside = torch.tensor([[-5.0, 0.31, 0.77, 9.0]]).double()
    assert float(density(outside, torch.tensor(0.0), torch.tensor(1.0), 10).sum()) == 1


def test_smoothing_keeps_the_number_of_bins_and_a_constant():
    assert torch.equal(smoothed(torch.ones(2, 30), 15), torch.ones(2, 30))
