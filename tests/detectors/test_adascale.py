"""AdaSCALE against plain loops."""

import math

import numpy as np
import pytest
import references as ref
from references import close

from rood.detectors import AdaSCALE, Scale
from rood.errors import InputError

OPTIONS = {"k1": 30.0, "k2": 20.0, "pixels": 0.1}  # of 16 features and 192 pixel values


def shift(model, image, o, k1, k2, weight, eta):
    """Q: the features after a step in the pixels that matter least."""
    logits, features = ref.array_logits(model), lambda v: model(v).features[0].numpy()
    slope = ref.slopes(lambda v: [max(z) for z in logits(v)], image)
    order = np.abs(slope).ravel().argsort(kind="stable")[: int(image.size * o)]
    moved = image.copy().ravel()
    moved[order] += eta * np.sign(slope.ravel()[order])
    f, after = (features(as_images(v)) for v in (image, moved.reshape(image.shape)))
    largest = sorted(range(len(f)), key=lambda i: -f[i])
    kept = sum(max(after[i], 0) for i in largest[: int(len(f) * k1 / 100)])
    return kept + weight * sum(abs(after[i] - f[i]) for i in largest[: int(len(f) * k2 / 100)])


def as_images(v):
    import torch

    return torch.from_numpy(np.ascontiguousarray(v))[None]


def test_adascale_equals_its_reference(double, features, x):
    train = [(double.train[0][0][:12], double.train[0][1][:12])]
    d = AdaSCALE(double.model, **OPTIONS).fit(train)
    q = lambda image: shift(double.model, image, 0.1, 30.0, 20.0, 10.0, 0.125)
    seen = sorted(q(image) for image in train[0][0].numpy())
    np.testing.assert_allclose(d.shifts_.numpy(), seen, rtol=1e-4)
    want = []
    for image, f in zip(x[:4].numpy(), features[:4], strict=True):
        below = sum(s <= q(image) for s in seen) / len(seen)
        p = 75 + (1 - below) * 10
        k = max(1, len(f) - round(len(f) * p / 100))
        r = sum(f) / sum(sorted(f)[-k:])
        want.append(ref.head_energy([math.exp(r) * v for v in f], *ref.head_of(double)))
    close(d.score(x[:4]), want, rtol=1e-8)


def test_a_range_of_one_percentile_is_scale(double, x):
    d = AdaSCALE(double.model, low=80.0, high=80.0).fit(double.train)
    close(d.score(x), Scale(double.model, percentile=80.0).score(x).numpy(), rtol=1e-9)


def test_adascale_refuses_percentiles_the_wrong_way_round(double):
    with pytest.raises(InputError, match="low <= high"):
        AdaSCALE(double.model, low=90.0, high=80.0)
