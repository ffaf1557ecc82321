"""MCM against plain loops, on a tiny CLIP and a tiny SigLIP made here."""

import math

import numpy as np
import pytest
import references as ref
import tiny_clip
import torch
from tiny_clip import IN, OUT, SIZE

import rood
from rood.attacks import PGD
from rood.detectors import MCM, MSP
from rood.errors import CapabilityError, InputError
from rood.goals import look_in, look_out
from rood.models.sources.clip import zero_shot
from rood.threat import Linf


@pytest.fixture(scope="module", params=["save", "save_siglip"])
def folder(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield getattr(tiny_clip, request.param)(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def model(folder):
    return zero_shot(folder, inside=[*IN, *OUT])


@pytest.fixture
def images():
    return torch.rand(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def all_cosines(model, x):
    """Of images and texts in float64, by plain loops over the two towers' features."""
    images = model.double()(x.double()).features.tolist()
    texts = model.head.weight.tolist()
    unit = lambda v: [a / math.sqrt(sum(b * b for b in v)) for a in v]
    dot = lambda u, v: sum(a * b for a, b in zip(unit(u), unit(v), strict=True))
    return [[dot(v, t) for t in texts] for v in images]


@pytest.mark.parametrize("temperature", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("inside", [None, 2, 4])
def test_mcm_is_the_papers_confidence_turned(inside, temperature, model, images):
    s = MCM(model.double(), inside=inside, temperature=temperature).score(images.double())
    for c, got in zip(all_cosines(model, images), s.tolist(), strict=True):
        c = c[:inside]
        confidence = max(ref.softmax([v / temperature for v in c]))
        again = 1 / (1 + (len(c) - 1) * math.exp(got / temperature))
        assert again == pytest.approx(confidence, rel=1e-9)
        # the formula itself: the soft mean of the others, less the nearest
        y = c.index(max(c))
        others = [math.exp((v - c[y]) / temperature) for j, v in enumerate(c) if j != y]
        want = temperature * math.log(sum(others) / len(others))
        assert got == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_the_scale_and_the_bias_of_the_model_have_no_part(model, images):
    want = MCM(model).score(images)
    with torch.no_grad():
        model.head.weight.mul_(7.0)
        if model.head.bias is not None:
            model.head.bias.add_(3.0)
    ref.close(MCM(model).score(images), want.numpy(), rtol=1e-4)
    assert not torch.allclose(MSP(model).score(images), want, rtol=1e-2)


@pytest.mark.parametrize("size", [SIZE, 11])
@pytest.mark.parametrize(("goal", "sign"), [(look_in, -1), (look_out, 1)])
def test_an_attack_through_the_whole_tower_moves_every_score(goal, sign, size, model):
    g = torch.Generator().manual_seed(1)
    x = torch.rand(6, 3, size, size, generator=g)
    d = MCM(model)
    found = PGD(steps=10, restarts=1)(goal(d), x, Linf(8 / 255), g)
    assert (found - x).abs().max() <= 8 / 255 + 1e-6
    assert (sign * (d.score(found) - d.score(x)) > 0).all()


def test_every_pixel_has_a_gradient_and_it_is_that_of_differences(model):
    d = MCM(model.double())
    x = torch.rand(1, 3, 10, 10, generator=torch.Generator().manual_seed(2)).double()
    x = (0.1 + 0.8 * x).requires_grad_()
    (g,) = torch.autograd.grad(d.score(x).sum(), x)
    assert (g != 0).all()
    with torch.no_grad():
        score = lambda v: d.score(torch.from_numpy(v)).tolist()
        want = ref.slopes(score, x.detach().numpy()[0])[None]
    ref.close(g, want, rtol=1e-3)


def test_scores_at_the_papers_temperature_do_not_tie(model):
    x = torch.rand(500, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))
    s = MCM(model).score(x)
    p = 1 / (1 + 4 * s.exp())  # the paper's, in float32
    assert len(s.unique()) >= 495
    assert len(p.unique()) <= len(s.unique())


def test_a_guard_keeps_the_words_by_the_networks_hash(folder, model, tmp_path):
    x = torch.rand(20, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(4))
    guard = rood.Guard.calibrated(MCM(model), [(x, torch.zeros(20).long())], classes=[*IN, *OUT])
    guard.save(tmp_path / "guard")
    again = rood.Guard.load(tmp_path / "guard", model=zero_shot(folder, inside=[*IN, *OUT]))
    assert torch.equal(again(x).score, guard(x).score)
    other = zero_shot(folder, inside=[*IN, *OUT], prompt="{}")
    with pytest.raises(CapabilityError, match="expected the network of the guard"):
        rood.Guard.load(tmp_path / "guard", model=other)


@pytest.mark.parametrize("inside", [0, 1, 6])
def test_two_words_or_more_are_compared(inside, model):
    with pytest.raises(InputError, match="expected 2 to 5 ID words of 5 words"):
        MCM(model, inside=inside)


def test_a_temperature_is_above_zero(model):
    with pytest.raises(InputError, match="temperature above 0"):
        MCM(model, temperature=0.0)


def test_of_any_other_classifier_it_compares_features_with_rows_of_the_head(double, queries):
    x, _, features = queries
    rows = double.model.head.weight.tolist()
    want = []
    for f in features:
        c = [np.dot(f, w) / (np.linalg.norm(f) * np.linalg.norm(w)) for w in rows]
        y = int(np.argmax(c))
        want.append(math.log(np.mean([math.exp(v - c[y]) for j, v in enumerate(c) if j != y])))
    ref.close(MCM(double.model).score(x), want, rtol=1e-9)
