"""Auto-encoders: matching codes does not help an attacker, asking for the score itself does."""

from functools import partial

import numpy as np
import pytest
import torch
from refusals import refused
from toy_generative import drawn, trained_coder
from toy_training import new_model, toy

from rood.analysis.matching import attack_pairs, features
from rood.attacks import PGD, FeatureMatch
from rood.detectors import AutoEncoder
from rood.errors import CapabilityError, InputError
from rood.goals import look_in
from rood.metrics import auroc
from rood.models import backbones, checkpoint
from rood.models.generative.autoencoder import AutoEncoderNetwork
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.testing import detector_checks, toy_world
from rood.testing._support import as_in_production
from rood.threat import L2
from rood.training import job
from rood.training.objectives import Batch
from rood.training.objectives.reconstruction import Reconstruction
from rood.training.recipe import Recipe
from rood.training.settings import Settings

RESIDUALS = ("l2", "l1", "mahalanobis")
EPS = 2.0


@pytest.fixture(scope="module")
def coder():
    return trained_coder(toy_world())


@pytest.fixture(scope="module")
def matched(coder):
    """Stripes with the codes of blobs."""
    world = toy_world()
    return attack_pairs(features(coder), world.inside, world.outside, FeatureMatch(), L2(EPS))


@pytest.mark.parametrize("residual", RESIDUALS)
def test_matching_codes_fails_where_the_direct_attack_does_not(world, coder, matched, residual):
    detector = AutoEncoder(coder, residual=residual).fit(world.train)
    clean = detector.score(world.inside)
    assert auroc(inside=clean, outside=detector.score(world.outside)) > 0.99
    assert np.median(matched.mape) < 1e-3  # the codes are the same
    assert matched.auroc(detector.score) > 0.95
    direct = PGD(steps=40)(look_in(detector), world.outside, L2(EPS), generator(0, "direct"))
    assert auroc(inside=clean, outside=detector.score(direct)) < 0.4


def test_what_reads_codes_alone_is_deceived_by_the_same_images(coder, matched):
    energy = lambda x: -coder(x).logits.logsumexp(dim=1)
    assert matched.auroc(energy) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("residual", ["l2", "l1"])
def test_the_other_residuals_keep_the_contract(world, residual):
    factory = partial(AutoEncoder.example, residual=residual)
    for check in detector_checks(factory):
        if check.__name__ != "check_complains_before_fit":  # they have nothing to learn
            check(factory, world.copy())


def test_an_unknown_residual_is_refused(coder):
    words = "l2, l1 or mahalanobis, got 'linf'"
    with as_in_production():
        refused(InputError, words, partial(AutoEncoder, residual="linf"), coder)


def test_a_model_without_one_is_refused_in_a_sentence(world, coder):
    with pytest.raises(CapabilityError, match="'autoencoder', got SmallCNN: train one"):
        AutoEncoder(new_model())
    with pytest.raises(InputError, match="expected mean 0 and std 1 around AutoEncoderNetwork"):
        AutoEncoder(wrap(coder.net, head="head", mean=[0.0] * 3, std=[0.5] * 3))
    with pytest.raises(CapabilityError, match="'autoencoder', got Sequential"):
        Reconstruction().loss(world.model, Batch(*world.train[0]), torch.Generator())


def test_fitting_on_nothing_is_refused(coder):
    with pytest.raises(InputError, match="training images to fit on, got none"):
        AutoEncoder(coder, residual="mahalanobis").fit([])


@pytest.mark.parametrize(
    ("settings", "said"), [({"numbers": 66}, "1 to 65 numbers"), ({"size": 30}, "divisible by 4")]
)
def test_a_code_is_a_twelfth_of_the_image_at_most(settings, said):
    with pytest.raises(InputError, match=said):
        backbones.create("autoencoder", classes=3, channels=1, **settings)


def test_images_of_another_size_are_resized_on_the_way(coder):
    net = AutoEncoderNetwork.of(coder)
    x = drawn(2, 3, 16, 24)
    small = torch.nn.functional.interpolate(x, (8, 8), mode="bilinear")
    assert torch.equal(net.code(x), net.code(small))
    assert net.reconstruct(x).shape == x.shape


def test_the_probe_learns_and_the_coder_does_not_hear_of_classes(world, coder):
    x, y = world.train[0]
    found = []
    for labels in (y, y.flip(0)):
        model = AutoEncoderNetwork.beside(world.model, size=8, width=4, numbers=8)
        loss = Reconstruction().loss(model.requires_grad_(), Batch(x, labels), torch.Generator())
        loss.backward()
        found.append({n: p.grad for n, p in model.net.named_parameters()})
    for name, g in found[0].items():
        assert torch.equal(g, found[1][name]) != name.startswith("head"), name


def test_a_recipe_trains_one_and_its_file_scores_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(job.data, "load", lambda *_, **__: toy(120))
    recipe = Recipe(
        data="toy",
        backbone="autoencoder",
        architecture={"size": 8, "width": 4, "numbers": 4},
        objective=Reconstruction(),
        settings=Settings(epochs=3, batch_size=20, optimizer="adam", lr=1e-2, weight_decay=0.0),
    )
    out = tmp_path / "coder.safetensors"
    epochs = list(job.run(recipe, out, "rood train", half=True))
    assert epochs[-1].loss < epochs[0].loss
    model = checkpoint.load(out)
    assert checkpoint.read_card(out)["training"]["objective"] == {"name": "reconstruction"}
    noise = drawn(40, 1, 8, 8)
    detector = AutoEncoder(model)
    assert auroc(inside=detector.score(toy(40, 5).pixels()), outside=detector.score(noise)) > 0.9


@pytest.mark.parametrize("residual", ["l2", "l1", "mahalanobis"])
def test_the_autoencoder_score_is_the_residual_written_out(world, residual):
    model = trained_coder(world)
    detector = AutoEncoder(model, residual=residual).fit(world.train)
    with torch.no_grad():
        left = lambda x: (x - model.net.reconstruct(x)).double().numpy()
        train = left(torch.cat([x for x, _ in world.train]))
        found, r = detector.score(world.inside).numpy(), left(world.inside)
    want = []
    for image in r:
        total = 0.0
        for place, value in np.ndenumerate(image):
            column = train[(slice(None), *place)]
            if residual == "l1":
                total += abs(value)
            elif residual == "l2":
                total += value**2
            else:
                total += (value - column.mean()) ** 2 / max(column.var(), 1 / 255**2)
        want.append(total / image.size)
    np.testing.assert_allclose(found, want, rtol=1e-4)
