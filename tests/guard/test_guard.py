"""A guard's decisions: labels of the network, scores of the detector, accepted by threshold."""

import pytest
import torch
from refusals import refused
from small_audit import small_model
from torch.nn.functional import interpolate
from toy_guard import Broken, batches, guarded, mixed

from rood.detectors import KNN, MSP, Ensemble, LowResolution, Mirrored
from rood.errors import InputError, NotFittedError
from rood.guard.guard import Guard
from rood.testing._support import as_in_production


@pytest.fixture(scope="module")
def model():
    return small_model()


def test_a_decision_is_label_score_and_accept(model):
    guard = guarded(KNN(model, k=5), rate=0.1)
    x = mixed()
    label, score, accept = guard(x)
    assert torch.equal(label, model(x).logits.argmax(dim=1))
    assert torch.equal(score, guard.detector.score(x).detach())
    assert torch.equal(accept, score <= guard.threshold)
    assert accept[:20].float().mean() > 0.7
    assert not accept[20:].any()
    assert not score.requires_grad


@pytest.mark.parametrize("around", [lambda d: d, Mirrored, lambda d: Ensemble([d])])
def test_behind_a_resize_the_label_is_that_of_the_resized_image(model, around):
    detector = around(LowResolution(MSP(model), size=(24, 24)))
    x = mixed()
    label, score, _ = guarded(detector)(x)
    logits = model(interpolate(x, (24, 24), mode="bilinear")).logits
    assert torch.equal(label, logits.argmax(dim=1))
    assert torch.equal(score, detector.score(x))
    assert not torch.equal(label, model(x).logits.argmax(dim=1))


def test_its_repr_names_network_detector_threshold_and_rate(model):
    guard = guarded(KNN(model, k=5), rate=0.1)
    assert repr(guard) == (
        f"<Guard: KNN on SmallCNN, threshold {guard.threshold:.6g}, false-alarm rate <= 0.1, "
        "images (3, 8, 8)>"
    )


def test_the_calibration_images_are_rejected_as_often_as_it_says(model):
    guard = guarded(MSP(model), rate=0.1)
    rejected = sum(int((~guard(x).accept).sum()) for x, _ in batches())
    assert rejected == guard.calibration.rejected == 11


def test_a_score_that_is_not_a_number_is_rejected(model):
    guard = Guard.calibrated(Broken(model), batches(), rate=0.5)
    _, score, accept = guard(mixed()[:30])
    assert score[::2].isnan().all()
    assert not accept[::2].any()
    assert accept[1::2].any()


def test_images_that_the_threshold_says_nothing_about_are_refused(model):
    guard = guarded(MSP(model))
    with as_in_production():
        refused(InputError, "on which the threshold was set", guard, torch.zeros(1, 3, 9, 8))
        refused(InputError, "[0, 1]", guard, torch.full((1, 3, 8, 8), 1.5))
        refused(InputError, "(b, c, h, w)", guard, torch.zeros(3, 8, 8))


def test_no_images_get_no_decisions(model):
    for answer in guarded(KNN(model, k=5))(torch.empty(0, 3, 8, 8)):
        assert answer.shape == (0,)


def test_what_makes_no_guard_is_refused(model):
    refused(NotFittedError, "call fit() first", Guard.calibrated, KNN(model), batches())
    refused(InputError, "no image", Guard.calibrated, MSP(model), [])
    odd = [*batches(), (torch.zeros(1, 3, 9, 9), torch.zeros(1, dtype=torch.long))]
    refused(InputError, "one shape, got 2 shapes", Guard.calibrated, MSP(model), odd)
    words = "expected 3 names, one for each class of the network, got 2"
    refused(InputError, words, guarded, MSP(model), classes=("a", "b"))


@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_decision_does_not_depend_on_the_batch(model, size):
    guard = guarded(KNN(model, k=5))
    whole = guard(mixed())
    parts = [guard(p) for p in mixed().split(size)]
    scores = torch.cat([p.score for p in parts])
    torch.testing.assert_close(scores, whole.score, rtol=1e-5, atol=1e-5)
    assert torch.cat([p.label for p in parts]).tolist() == whole.label.tolist()
