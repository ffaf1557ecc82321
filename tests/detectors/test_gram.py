"""Gram against a literal reference; its surrogate."""

import numpy as np
import pytest
import references as ref
import torch
from references import close
from torch import nn

from rood.detectors import Gram
from rood.errors import CapabilityError, InputError
from rood.models.wrap import wrap
from rood.seeds import row_keys


def statistic(f, q):
    """Signed q-th roots of the row sums of a literal Gram matrix, channels x channels."""
    f = f.reshape(len(f), -1) ** q
    g = np.array([[float(np.dot(a, b)) for b in f] for a in f])
    rows = g.sum(axis=1)
    return np.sign(rows) * np.abs(rows) ** (1 / q)


def deviation(v, low, high):
    total = 0.0
    for a, lo, hi in zip(v, low, high, strict=True):
        total += max(lo - a, 0) / abs(lo + 1e-6) + max(a - hi, 0) / abs(hi + 1e-6)
    return total


class GramReference:
    def __init__(self, model, layers, orders):
        self.model, self.layers, self.orders = model, layers, orders

    def look(self, x):
        """For each image: predicted class, max p, a vector of statistics a layer."""
        out = self.model(x, self.layers)
        maps = [m.numpy() for m in out.maps]
        for i, z in enumerate(out.logits.tolist()):
            each = [[statistic(m[i], q) for q in range(1, self.orders + 1)] for m in maps]
            yield z.index(max(z)), max(ref.softmax(z)), [np.concatenate(v) for v in each]

    def deltas(self, y, p, stats):
        low, high = self.bounds[y]
        return [deviation(v, a, b) / p for v, a, b in zip(stats, low, high, strict=True)]

    def fit(self, x, held):
        seen = list(self.look(x))
        self.bounds = {}
        for c in {y for y, _, _ in seen}:
            mine = [s for (y, _, s), h in zip(seen, held, strict=True) if y == c and not h]
            by_layer = [np.stack(v) for v in zip(*mine, strict=True)]
            self.bounds[c] = ([v.min(axis=0) for v in by_layer], [v.max(axis=0) for v in by_layer])
        out = [self.deltas(*s) for s, h in zip(seen, held, strict=True) if h]
        self.scale = np.mean(out, axis=0) + 1e-7
        return self

    def score(self, x):
        return [float(np.sum(self.deltas(*s) / self.scale)) for s in self.look(x)]


@pytest.mark.parametrize(("orders", "layers"), [(1, None), (5, None), (10, ("3", "5"))])
def test_gram_equals_a_literal_reference(orders, layers, double, x):
    images, _ = ref.images_and_labels(double)
    d = Gram(double.model, orders=orders, layers=layers).fit(double.train)
    held = (row_keys(images) % 10 == 0).tolist()
    assert 5 < sum(held) < 60
    want = GramReference(double.model, d.taps, orders).fit(images, held).score(x)
    close(d.score(x), want, rtol=1e-6)
    assert max(want) > 0


def test_gram_takes_bounds_of_the_predicted_class_and_not_of_the_label(double, x):
    wrong = [(b, (y + 1) % 3) for b, y in double.train]
    a, b = Gram(double.model).fit(double.train), Gram(double.model).fit(wrong)
    assert torch.equal(a.score(x), b.score(x))


def test_gram_does_not_overflow_on_large_activations(world):
    world.model.net[0].weight.data.mul_(1e4)
    for bn in (world.model.net[1], world.model.net[4]):
        bn.eps = 1e12  # leaves the maps large
    d = Gram(world.model, orders=10, layers=("0",)).fit(world.train)
    assert world.model(world.inside, ("0",)).maps[0].abs().max() > 1e4
    s = d.score(world.outside)
    assert s.isfinite().all()
    assert s.max() > 0


def test_gram_scales_with_the_maps(double):
    d = Gram(double.model, orders=4, layers=("0",))
    maps = torch.randn(3, 8, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    want = np.stack([np.concatenate([statistic(m, q) for q in range(1, 5)]) for m in maps.numpy()])
    close(d.statistics((maps,)), want, rtol=1e-9)
    close(d.statistics((1e6 * maps,)), 1e12 * want, rtol=1e-9)
    maps[:, 0], maps[2] = 0, 0  # a dead channel, a dead image
    (g,) = torch.autograd.grad(d.statistics((maps.requires_grad_(),)).sum(), maps)
    assert g.isfinite().all()


def test_grams_surrogate_leads_out_of_the_box_where_the_score_is_flat(double):
    d = Gram(double.model).fit(double.train)
    images = double.inside.clone().requires_grad_()
    s = d.score(images)
    (own,) = torch.autograd.grad(s.sum(), images)
    (soft,) = torch.autograd.grad(d.surrogates()[0](images).sum(), images)
    inside = s == 0
    assert inside.sum() > 5
    assert own[inside].abs().sum() == 0
    assert (soft[inside].flatten(1).abs().amax(dim=1) > 0).all()


def test_grams_surrogate_falls_towards_the_middle_of_the_box(double, monkeypatch):
    d = Gram(double.model).fit(double.train)
    x = double.inside[:5]
    y = double.model(x).logits.argmax(dim=1)
    low, high = d.low_[y], d.high_[y]
    alike = (low.abs() > 0.3 * high.abs()) & (high.abs() > 0.3 * low.abs()) & (high > low)
    assert alike.sum() > 20
    for place, sign in ((0.95, 1), (0.05, -1)):
        v = (low + place * (high - low)).requires_grad_()
        monkeypatch.setattr(d, "statistics", lambda _, v=v: v)
        (g,) = torch.autograd.grad(d.surrogates()[0](x).sum(), v)
        assert (g[alike].sign() == sign).all()


def test_gram_takes_flat_maps_and_refuses_too_few_images(double):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.ReLU(), nn.Linear(6, 3)
    )
    model = wrap(net.double())
    assert Gram(model).fit(double.train).score(double.outside).isfinite().all()
    with pytest.raises(InputError, match="too few"):
        Gram(model).fit([(x[:1], y[:1]) for x, y in double.train[:1]])
    with pytest.raises(CapabilityError, match="convolutions"):
        Gram(wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 3))))
