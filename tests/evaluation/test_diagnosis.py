"""Every check of a setup finds the mistake that it is for, and is quiet where there is none."""

import copy
import inspect
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

from rood.data import ImageSet
from rood.detectors import KNN, MSP, Energy
from rood.errors import InputError
from rood.evaluation.diagnosis import (
    Diagnosis,
    Setup,
    Subject,
    examine,
    notes,
    refuse,
    registry,
    with_notes,
)
from rood.evaluation.diagnosis.base import surely_better
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.testing.world import blobs, stripes
from rood.threat import Linf

CLASSES = ("red", "green", "blue")


def images(name, x, y=None, classes=()):
    return ImageSet(name, x, y, classes)


@pytest.fixture
def honest(world):
    """A setup without a mistake."""
    inside = images("inside", *blobs(150, seed=21), CLASSES)
    subject = Subject("net", world.model, inside, {"classes": CLASSES})
    return Setup(
        subjects=[subject],
        inside=inside,
        outside={"stripes": images("stripes", stripes(120, seed=22))},
        fit=images("fit", *blobs(150, seed=23), CLASSES),
        calibrate=images("calibrate", *blobs(60, seed=24), CLASSES),
        detectors={"net": {"msp": MSP(world.model), "knn": KNN(world.model, k=10)}},
        threats=[Linf(0.05)],
    )


def with_network(setup, change=lambda net: net, **moments):
    """The setup with a changed copy of its network."""
    old = setup.subjects[0]
    net = change(copy.deepcopy(old.model.net))
    model = wrap(net, **({"mean": (0.4,) * 3, "std": (0.25,) * 3} | moments))
    return replace(setup, subjects=[replace(old, model=model)])


def with_inside(setup, **changes):
    """The setup with other test images."""
    inside = replace(setup.inside, **changes)
    subjects = [replace(one, images=inside) for one in setup.subjects]
    return replace(setup, inside=inside, subjects=subjects)


def with_outside(setup, x, y=None):
    return replace(setup, outside={"other": images("other", x, y)})


def with_card(setup, **card):
    return replace(setup, subjects=[replace(setup.subjects[0], card=card)])


class Cut(nn.Module):
    """A network that autograd cannot look through."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        with torch.no_grad():
            return self.net(x)


def turned(net):
    """The same network with its outputs in another order."""
    with torch.no_grad():
        for p in (net[-1].weight, net[-1].bias):
            p.copy_(p.roll(1, dims=0).clone())
    return net


def constant(net):
    with torch.no_grad():
        net[-1].weight.zero_()
    return net


def squashed(net):
    net[-1] = nn.Sequential(net[-1], nn.Sigmoid(), nn.Linear(3, 3))
    with torch.no_grad():
        net[-1][2].weight.copy_(torch.eye(3))
        net[-1][2].bias.zero_()
    return net


def enlarged(setup):
    """Pictures of 32x32 as ID images; the same, shrunk to 20x20 and enlarged again, as OOD."""
    x = interpolate(setup.fit.images, 32, mode="bicubic").clamp(0, 1)
    again = interpolate(interpolate(x, 20, mode="area"), 32, mode="bilinear")
    ours = images("inside", x)
    return replace(setup, inside=ours, fit=ours, calibrate=ours, outside={"o": images("o", again)})


def guessed(setup):
    y = torch.randint(0, 3, (len(setup.inside),), generator=torch.Generator().manual_seed(0))
    return with_inside(setup, labels=y)


# check: what is wrong -> the setup with it, status, words of the sentence
MISTAKES = {
    "loaded": {
        "a note of the source": (
            lambda s: with_card(s, notes=["no --weights were given"]),
            "warn",
            ["no --weights were given"],
        ),
    },
    "true_logits": {
        "a sigmoid at the end": (
            lambda s: with_network(s, squashed),
            "warn",
            ["expected logits", "without it"],
        ),
        "the same for all images": (
            lambda s: with_network(s, constant),
            "fail",
            ["depend on the image", "the same for 150"],
        ),
    },
    "class_folders": {
        "no labels": (lambda s: with_inside(s, labels=None), "warn", ["got none", "per class"]),
        "too many": (
            lambda s: with_inside(s, labels=s.inside.labels + 2, classes=()),
            "fail",
            ["labels 0 to 2, got up to 4"],
        ),
        "too few": (
            lambda s: with_inside(s, labels=s.inside.labels % 2, classes=CLASSES[:2]),
            "warn",
            ["3 class folders", "got 2"],
        ),
    },
    "class_order": {
        "other outputs": (
            lambda s: with_card(with_network(s, turned)),
            "fail",
            ["1.00 in another order", "0_blue, 1_red, 2_green"],
        ),
        "names of the card": (
            lambda s: with_inside(s, classes=("blue", "red", "green")),
            "fail",
            ["'blue' as 0 for 2", "0_red, 1_green, 2_blue"],
        ),
    },
    "normalised": {
        "forgotten": (
            lambda s: with_network(s, mean=(0.0,), std=(1.0,)),
            "fail",
            ["mean and std of the network's training", "--mean"],
        ),
        "blue, green, red": (
            lambda s: with_inside(s, images=s.inside.images.flip(1)),
            "fail",
            ["1.00 with channels in the order BGR"],
        ),
    },
    "accurate": {
        "labels of something else": (guessed, "fail", ["near chance, 0.333", "--mean"]),
        "the same, but nothing is attacked": (
            lambda s: replace(guessed(s), threats=[]),
            "warn",
            ["near chance, 0.333"],
        ),
    },
    "same_images": {
        "the same": (
            lambda s: with_outside(s, s.inside.images),
            "fail",
            ["150 of 150 in 'other' that are ID images too"],
        ),
        "resized": (
            enlarged,
            "fail",
            ["150 of 150 in 'o' that are, or look the same as, ID images"],
        ),
        "a few": (
            lambda s: with_outside(s, torch.cat([s.fit.images[:9], stripes(120, seed=1)])),
            "warn",
            ["9 of 129 images are in-distribution images too"],
        ),
    },
    "swapped_sides": {
        "labels": (
            lambda s: with_outside(
                with_inside(s, images=stripes(150, seed=2), labels=None), *blobs(120, seed=3)
            ),
            "warn",
            ["net gets 1.00 of these labelled OOD images right", "swapped?"],
        ),
        "confidence": (
            lambda s: with_outside(
                with_inside(s, images=stripes(150, seed=2), labels=None), blobs(120, seed=3)[0]
            ),
            "warn",
            ["net is surer of these OOD images", "swapped?"],
        ),
    },
    "resizing_artefacts": {
        "enlarged": (
            lambda s: with_outside(
                s, s.outside["stripes"].images[:, :, :, ::2].repeat_interleave(2, 3)
            ),
            "warn",
            ["repeat columns"],
        ),
    },
    "sample_sizes": {
        "few": (
            lambda s: with_outside(s, stripes(20, seed=2)),
            "warn",
            ["small sample", "20 in 'other'", "give more images"],
        ),
        "limited": (lambda s: replace(s, limit=25), "warn", ["25 in 'inside'", "raise --limit"]),
    },
    "neighbours": {
        "too many": (
            lambda s: replace(s, detectors={"net": {"k": KNN(s.subjects[0].model, k=50)}}),
            "warn",
            ["k = 50 neighbours of 150", "about 50 per class", "set k = 12", "--train"],
        ),
    },
    "pixel_gradient": {
        "cut off": (lambda s: with_network(s, Cut), "warn", ["cut off", "query"]),
        "zero": (lambda s: with_network(s, constant), "warn", ["got zero for 8 of 8 images"]),
    },
    "time_and_memory": {
        "long": (
            lambda s: replace(s, threats=[Linf(i / 1000) for i in range(1, 200)] * 500),
            "warn",
            [" h and ", "chooses what fits"],
        ),
    },
}
CASES = [(check, what) for check, found in MISTAKES.items() for what in found]


def of(check, setup):
    return list(registry.get(check)().look(setup))


@pytest.mark.parametrize(("check", "what"), CASES)
def test_a_check_finds_its_mistake(honest, check, what):
    make, status, words = MISTAKES[check][what]
    found = [one for one in of(check, make(honest)) if one.status != "ok"]
    assert found
    assert {one.status for one in found} == {status}
    assert all(word in found[0].sentence() for word in words), found[0].sentence()
    assert {one.check for one in found} == {check}


def test_every_check_has_a_mistake_and_is_explained():
    assert set(MISTAKES) == set(registry.names()) - {"features_found"}  # which only reports
    for name in registry.names():
        assert inspect.getdoc(registry.get(name))


def test_an_honest_setup_is_without_a_fault(honest):
    found = list(examine(honest, estimate=True))
    assert [one for one in found if one.status != "ok"] == []
    assert {one.check for one in found} == set(registry.names())


def test_an_audit_does_not_wait_for_the_estimate(honest):
    found = examine(honest)
    assert set(registry.names()) - {one.check for one in found} == {"time_and_memory"}


def test_looking_leaves_network_and_images_as_they_were(honest):
    before = honest.subjects[0].model.fingerprint(), honest.inside.fingerprint()
    list(examine(honest, estimate=True))
    assert (honest.subjects[0].model.fingerprint(), honest.inside.fingerprint()) == before


def test_a_network_of_logits_alone_is_said(honest):
    (found,) = of("features_found", with_card(honest, logits_only=True))
    assert "no features" in found.found
    (found,) = of("features_found", honest)
    assert found.found == "the head is '8': 16 features, 3 classes"


def test_a_failed_check_stops_unless_it_is_to_go_on():
    fail = Diagnosis("accurate", "fail", "expected a, got b", "do c", "net")
    refuse([Diagnosis("accurate", "warn", "w"), Diagnosis("accurate", "ok", "o")], anyway=False)
    with pytest.raises(InputError, match=r"net: expected a, got b: do c; to go on .* --anyway"):
        refuse([fail], anyway=False)
    refuse([fail], anyway=True)


def test_notes_are_of_a_set_or_of_everything(honest):
    found = [
        Diagnosis("a", "ok", "fine"),
        Diagnosis("a", "warn", "of all", "do it"),
        Diagnosis("a", "fail", "of a set", about="stripes"),
    ]
    assert notes(found, honest.outside) == ["of all: do it"]
    assert with_notes(found, honest.outside)["stripes"].notes == ("of a set",)


def test_a_better_reading_is_better_than_chance_allows():
    right = lambda *places: torch.isin(torch.arange(100), torch.tensor(places)).numpy()
    assert surely_better(right(*range(60)), right(*range(30)))
    assert not surely_better(right(*range(36)), right(*range(30)))  # too little
    assert not surely_better(right(*range(50, 95)), right(*range(32)))  # a coin may do that
    assert not surely_better(right(*range(41)), right(*range(30)), tries=10)


def test_the_order_is_judged_on_images_that_did_not_find_it(honest):
    """More classes than images can be put into a perfect order: that order means nothing."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(80, 3, 8, 8, generator=g), torch.arange(80)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 80))
    subject = Subject("net", wrap(net), images("inside", x, y))
    (found,) = of("class_order", replace(honest, subjects=[subject]))
    assert found.status == "ok"


def test_energy_and_memory_of_nothing_attacked(honest):
    (found,) = of("time_and_memory", replace(honest, threats=[]))
    assert found.found.startswith("at most about 1 s")
    assert isinstance(Energy(honest.subjects[0].model).model, Model)
