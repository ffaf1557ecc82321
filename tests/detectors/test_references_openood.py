"""Presets that compute what OpenOOD v1.5 does under a name, against plain loops of that."""

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr
from torch import nn

from rood.detectors import Gram, LayeredMahalanobis
from rood.errors import InputError
from rood.models import backbones
from rood.models.wrap import wrap

LAYERS = ("2", "5")  # of the toy network, behind a ReLU


@pytest.fixture
def double(world):
    return world.double()


@pytest.fixture
def x(double):
    return torch.cat([double.inside[:10], double.outside[:10]])


def images_and_labels(double):
    return tuple(torch.cat(part) for part in zip(*double.train, strict=True))


# Gram: the row sums of all channels and images of a class share one least and one greatest value;
# an image is judged by the sum of its row sums, and what lies outside counts as confidence


def row_sums(f, p):
    """The p-th roots of the row sums of F^p (F^p)', one number a channel."""
    f = f.reshape(len(f), -1) ** p
    gram = np.array([[float(np.dot(a, b)) for b in f] for a in f])
    total = gram.sum(axis=1)
    return np.sign(total) * np.abs(total) ** (1 / p)


def confidence_by_gram(model, layers, images, labels, x):
    of = lambda x: [m.numpy() for m in model(x, layers).maps]
    bounds = {}
    for layer, maps in enumerate(of(images)):
        for p in range(1, 6):
            for f, y in zip(maps, labels.tolist(), strict=True):
                values = row_sums(f, p)
                low, high = bounds.get((y, layer, p), (np.inf, -np.inf))
                bounds[y, layer, p] = min(low, values.min()), max(high, values.max())
    found = []
    maps, predicted = of(x), model(x).logits.argmax(dim=1).tolist()
    for i, y in enumerate(predicted):
        deviation = 0.0
        for layer in range(len(layers)):
            for p in range(1, 6):
                low, high = bounds[y, layer, p]
                v = float(row_sums(maps[layer][i], p).sum())
                deviation += max(low - v, 0) / abs(low + 1e-6) + max(v - high, 0) / abs(high + 1e-6)
        found.append(deviation / 50)
    return np.array(found)


def test_openoods_gram_equals_its_definition(double, x):
    images, y = images_and_labels(double)
    y = (y + (torch.arange(len(y)) % 7 == 0)) % 3  # labels that are not always what is predicted
    assert (y != double.model(images).logits.argmax(dim=1)).any()
    want = confidence_by_gram(double.model, LAYERS, images, y, x)
    d = Gram.openood(double.model, layers=LAYERS).fit(
        [(images[:50], y[:50]), (images[50:], y[50:])]
    )
    close(d.score(x), -50 * want, rtol=1e-8)
    assert want[:10].min() > 0


def test_openoods_gram_learns_by_label_and_so_needs_one(double):
    images, y = images_and_labels(double)
    d = Gram.openood(double.model, layers=LAYERS)
    with pytest.raises(InputError, match="labels 0 to 2, got -1"):
        d.fit([(images, torch.full_like(y, -1))])
    one = d.fit([(images[y == 0], y[y == 0])])
    assert torch.equal(one.low_[0], one.low_[2])  # a class without images: the range of all


def test_gram_without_its_scale_is_the_plain_sum_of_deviations(double, x):
    plain = Gram(double.model, layers=LAYERS, scaled=False).fit(double.train)
    assert (plain.weight_ == 1).all()
    images, _ = images_and_labels(double)
    assert (plain.score(images) == 0).all()  # none is held out, so each is within its own bounds
    assert plain.score(x).max() > 0
    assert plain.surrogates()[0](x).isfinite().all()


def test_the_surrogate_of_openoods_gram_rises_with_the_score_and_is_never_flat(double, x):
    d = Gram.openood(double.model, layers=LAYERS).fit(double.train)
    x = x.clone().requires_grad_()
    s, (soft,) = d.score(x), d.surrogates()
    (own,) = torch.autograd.grad(s.sum(), x)
    (g,) = torch.autograd.grad(soft(x).sum(), x)
    assert (own[10:] == 0).all()  # in its bounds the score is flat
    assert (g.flatten(1).abs().amax(dim=1) > 0).all()
    assert spearmanr(s[:10].tolist(), soft(x)[:10].tolist()).statistic > 0.9


# MDSEns: the spatial mean of the first layer's map, a step of 0.0014 / 0.5 in normalised units


def confidence_by_mahalanobis(model, layer, images, labels):
    pooled = lambda x: model(x, (layer,)).maps[0].numpy().reshape(len(x), -1, 64).mean(axis=2)
    f, y = pooled(images), labels.numpy()
    means, sigma = ref.class_means(f, y), ref.pooled_covariance(f, y)

    def of(normal):
        """The confidence of one normalised image."""
        image = torch.from_numpy(normal) * model.std[0] + model.mean[0]
        v = pooled(image[None])[0]
        return max(-0.5 * ref.distance(v, m, sigma) for m in means)

    return of


def test_openoods_layered_mahalanobis_equals_its_definition(double):
    model = wrap(double.model.net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.5))
    images, y = images_and_labels(double)
    of = confidence_by_mahalanobis(model, "2", images, y)
    d = LayeredMahalanobis.openood(model, layers=("2",)).fit(double.train)
    x = torch.cat([double.inside[:2], double.outside[:2]])
    want = []
    for image in ((x - model.mean) / model.std).numpy():
        toward = np.where(ref.slopes(lambda v: -of(v), image) >= 0, 1, -1) / 0.5
        want.append(of(image - 0.0014 * toward))
    close(d.score(x), -np.array(want), rtol=1e-5)
    assert (d.score(x) < LayeredMahalanobis(model, layers=("2",)).fit(double.train).score(x)).all()


def test_a_step_in_units_of_std_is_one_in_pixels_times_std(double, x):
    assert (double.model.std == 0.25).all()
    a, b = (
        LayeredMahalanobis(double.model, layers=("2",), eta=eta, eta_unit=unit).fit(double.train)
        for eta, unit in ((0.01, "pixel"), (0.04, "std"))
    )
    close(a.score(x), b.score(x).numpy(), rtol=1e-12)


# the layers


def test_the_presets_read_the_layers_openoods_resnet18_lists():
    model = wrap(backbones.create("resnet18", classes=3, width=4))
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    gram, layered = Gram.openood(model), LayeredMahalanobis.openood(model)
    net = model.net
    want = [nn.functional.relu(net.norm(net.stem(x)))]
    for stage in range(4):
        want.append(net.blocks[2 * stage : 2 * stage + 2](want[-1]))
    want[-1] = want[-1].mean(dim=(2, 3), keepdim=True)
    maps = model(x, gram.taps).maps
    assert len(maps) == 5
    for found, right in zip(maps, want, strict=True):
        torch.testing.assert_close(found, right)
    torch.testing.assert_close(model(x, layered.layers).maps[0], want[0])
