"""Any classifier becomes a Model: its head is found, what is no classifier is refused."""

import copy
import threading
from types import SimpleNamespace

import pytest
import torch
from refusals import refused
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rood import wrap
from rood.detectors import KNN, MSP, Energy, Mahalanobis, ViM, fit_all, score_all
from rood.errors import (
    CapabilityError,
    CheckpointError,
    InputError,
    NotFittedError,
    UnknownNameError,
)
from rood.models.model import Model, _quickest
from rood.seeds import generator
from rood.testing._support import as_in_production


class Net(nn.Module):
    """A head that is registered where one does not look for it."""

    def __init__(self, *, head_first=False, auxiliary=0, after=None):
        super().__init__()
        if head_first:
            self.head = nn.Linear(10, 4)
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
        self.hidden = nn.Linear(6 * 36, 10)
        if not head_first:
            self.head = nn.Linear(10, 4)
        self.auxiliary = nn.Linear(10, auxiliary) if auxiliary else None
        self.after = after

    def forward(self, x):
        f = self.hidden(self.body(x)).relu()
        if self.auxiliary is not None:
            self.extra = self.auxiliary(f)
        z = self.head(f)
        return self.after(z) if self.after else z


def seeded(**options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net(**options)


def images(n=12):
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "options", [{}, {"head_first": True}, {"auxiliary": 4}, {"auxiliary": 7}, {"auxiliary": 2}]
)
def test_the_head_is_found_wherever_it_was_registered(options):
    net = seeded(**options)
    model = wrap(net)
    out = model(images())
    assert model.head is net.head
    assert model.classes == 4
    assert out.features.shape == (12, 10)
    torch.testing.assert_close(net.head(out.features), out.logits)
    torch.testing.assert_close(out.logits, net(images()))


@pytest.mark.parametrize("auxiliary", [2, 7])
def test_detectors_fit_on_the_true_head_before_anything_was_scored(auxiliary):
    model, y = wrap(seeded(auxiliary=auxiliary)), torch.arange(40) % 4
    d = Mahalanobis(model).fit([(images(40), y)])
    assert d.means_.shape == (4, 10)
    assert ViM(wrap(seeded(auxiliary=auxiliary))).fit([(images(40), y)]).origin_.shape == (10,)


def test_logits_inside_a_richer_answer_are_found():
    net = seeded(after=lambda z: SimpleNamespace(logits=z, loss=None))
    assert wrap(net)(images()).logits.shape == (12, 4)


def test_normalisation_happens_inside():
    net, x = seeded(), images()
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    by_hand = (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    model = wrap(net, mean=mean, std=std)
    torch.testing.assert_close(model(x).logits, net(by_hand))
    with pytest.raises(InputError, match=r"expected every std > 0, got \(0.0,\)"):
        wrap(net, std=(0.0,))


@pytest.mark.parametrize(
    ("after", "error", "says"),
    [
        (lambda z: z.softmax(dim=1), InputError, "got probabilities .* without its softmax"),
        (lambda z: z.log_softmax(dim=1), InputError, "got log-probabilities .* its log-softmax"),
        (lambda z: 2 * z, CapabilityError, "expected the logits to come straight from a linear"),
        (lambda z: (z, z), CapabilityError, r"expected the network to return logits \(b, k\)"),
        (lambda z: z[:, :, None], CapabilityError, r"return logits \(b, k\), got \(12, 4, 1\)"),
        (lambda z: z * torch.nan, InputError, "expected finite logits, got NaN"),
    ],
)
def test_what_does_not_end_in_logits_is_refused_at_the_first_images(after, error, says):
    with pytest.raises(error, match=says):
        wrap(seeded(after=after))(images())


def test_an_empty_first_batch_confirms_nothing_and_breaks_nothing():
    model = wrap(seeded(head_first=True))
    assert model(images()[:0]).features.shape == (0, 10)
    assert model(images()).features.shape == (12, 10)
    bad = wrap(seeded(after=lambda z: z.softmax(dim=1)))
    bad(images()[:0])
    refused(InputError, "got probabilities", bad, images())


def test_a_net_without_a_linear_layer_is_refused():
    with pytest.raises(CapabilityError, match="found no linear layer in Sequential: end it in"):
        wrap(nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()))


def test_one_class_is_not_a_classifier():
    with pytest.raises(CapabilityError, match="expected at least 2 classes, got 1"):
        wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 1)))(images())


def test_a_head_that_sees_more_than_one_vector_an_image_is_refused():
    net = nn.Sequential(nn.Flatten(2), nn.Linear(64, 4), nn.Flatten())
    with pytest.raises(CapabilityError, match="expected the logits to come straight from a linear"):
        wrap(net)(images())


def test_weights_that_cannot_be_attacked_are_refused():
    with pytest.raises(CapabilityError, match=r"float16 in 'body.0.weight': call .float"):
        wrap(seeded().half())
    with pytest.raises(CapabilityError, match="expected all weights on one device, got meta"):
        wrap(seeded().to("meta"))
    net = seeded()
    net.hidden.weight.data[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"got NaN or infinity in 'hidden.weight'"):
        wrap(net)


def test_an_unknown_head_is_answered_with_the_nearest():
    with pytest.raises(
        UnknownNameError, match="no linear layer is called 'haed': did you mean 'head"
    ):
        wrap(seeded(), head="haed")


def test_a_copy_and_a_converted_model_work_on_their_own():
    model = wrap(seeded(auxiliary=4))
    before = model(images())
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.head.weight.zero_()
    assert (twin(images()).logits - twin.head.bias == 0).all()
    assert torch.equal(model(images()).logits, before.logits)
    assert twin.head in set(twin.modules())
    assert copy.deepcopy(model).double()(images().double()).features.dtype == torch.float64


def test_a_forward_pass_leaves_no_hooks_and_no_changes_behind():
    model = wrap(seeded())
    before = copy.deepcopy(model.state_dict())
    model(images())
    assert all(not m._forward_hooks for m in model.modules())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    with pytest.raises(RuntimeError):
        model(torch.rand(2, 5, 8, 8))  # the wrong number of channels
    assert all(not m._forward_hooks for m in model.modules())


def test_wrapping_freezes_the_net_and_puts_it_into_eval_mode():
    model = wrap(seeded())
    assert not any(m.training for m in model.modules())
    assert not any(p.requires_grad for p in model.parameters())


def test_the_first_pass_in_train_mode_moves_batch_norm_once_and_no_mode():
    net = seeded()
    model = Model(net, net.head).train()
    net.hidden.eval()
    model(images())
    assert net.body[1].num_batches_tracked == 1
    assert [m.training for m in (net, net.body[1], net.hidden, net.head)] == [1, 1, 0, 1]


def test_a_fingerprint_sees_weights_and_normalisation():
    marks = {wrap(seeded(), mean=(m,)).fingerprint() for m in (0.0, 0.0, 0.1)}
    assert len(marks) == 2
    changed = seeded()
    changed.head.bias.data[0] += 1e-6
    assert wrap(changed).fingerprint() not in marks


# one forward pass for many


def test_many_detectors_share_one_forward_pass_in_fitting_and_scoring():
    model, y = wrap(seeded()), torch.arange(80) % 4
    model(images())
    calls = []
    model.net.register_forward_hook(lambda *_: calls.append(1))
    many = {"a": Mahalanobis(model), "b": KNN(model, k=3), "c": ViM(model), "d": MSP(model)}
    fit_all(many.values(), [(images(80), y), (images(40), y[:40])])
    assert len(calls) == 2
    score_all(many, images())
    assert len(calls) == 3


def test_fitting_on_nothing_or_on_what_does_not_match_is_refused():
    model = wrap(seeded())
    refused(InputError, "expected training images to fit on, got none", KNN(model).fit, [])
    with pytest.raises(InputError, match="expected one label per image, got 12 images, 3 labels"):
        KNN(model).fit([(images(), torch.arange(3))])
    with pytest.raises(InputError, match="expected labels 0 to 3, got 0 to 11"):
        Mahalanobis(model).fit([(images(), torch.arange(12))])
    with as_in_production(), pytest.raises(InputError, match="'class_average', got 'mean'"):
        Mahalanobis(model, pooling="mean")
    with pytest.raises(InputError, match="at least k = 50 training images, got 12: lower k"):
        KNN(model).fit([(images(), torch.arange(12) % 4)])


def test_the_state_of_another_detector_is_refused():
    model = wrap(seeded())
    state = KNN(model, k=2).fit([(images(), torch.arange(12) % 4)]).fitted_state()
    refused(InputError, "expected the fitted state of ViM", ViM(model).load_fitted, state)
    with pytest.raises(NotFittedError, match=r"KNN has no bank_ yet: call fit.. first"):
        KNN(model).fitted_state()


def test_a_goal_needs_a_fitted_detector():
    from rood.goals import look_in, misclassify

    model = wrap(seeded())
    with pytest.raises(NotFittedError, match=r"call fit.. first"):
        look_in(KNN(model))
    y = model(images()).logits.argmax(dim=1)
    assert (misclassify(model, y)(images()) < misclassify(model, (y + 1) % 4)(images())).all()
    assert look_in(Energy(model)).variants == ()


def test_a_named_layer_that_does_not_give_the_logits_is_refused():
    model = wrap(Net(), head="hidden")
    with pytest.raises(CapabilityError, match="named, 'hidden', but they come from 'head'"):
        model(torch.rand(2, 3, 8, 8))


@pytest.mark.parametrize(
    ("device", "dtype", "tf32", "autocast", "layout"),
    [
        ("cpu", torch.float32, False, False, torch.channels_last),
        ("cuda", torch.float32, False, False, torch.contiguous_format),
        ("cuda", torch.float32, True, False, torch.channels_last),
        ("cuda", torch.float32, False, True, torch.channels_last),
        ("cuda", torch.bfloat16, False, False, torch.channels_last),
    ],
)
def test_only_a_gpu_in_full_float32_gets_channels_first(
    monkeypatch, device, dtype, tf32, autocast, layout
):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: autocast)
    with FakeTensorMode():
        x = torch.empty(2, 3, 4, 4, device=device, dtype=dtype)
    assert _quickest(x) is layout


def test_threads_do_not_see_each_other_s_features(world):
    model = wrap(copy.deepcopy(world.model.net))
    batches = torch.rand(4, 3, 3, 8, 8, generator=generator(0))
    expected = [model(x).features for x in batches]
    wrong = []

    def work(i):
        for _ in range(20):
            if not torch.allclose(model(batches[i]).features, expected[i], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_three_means_for_grey_images_are_refused():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    model = wrap(net, mean=(0.4,) * 3, std=(0.2,) * 3)
    with pytest.raises(InputError, match="one for each of 1 channels, got 3"):
        model(torch.rand(2, 1, 8, 8))


@pytest.mark.parametrize("wrong", [{"mean": (123.7,)}, {"std": (58.4,)}, {"mean": (-0.1,)}])
def test_normalisation_of_8_bit_pixels_is_refused(wrong):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(
        InputError, match=r"pixels in \[0, 1\].*divide those of 8-bit pixels by 255"
    ):
        wrap(net, **wrong)
