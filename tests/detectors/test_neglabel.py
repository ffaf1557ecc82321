"""NegLabel against plain loops, on a tiny CLIP and a tiny SigLIP made here."""

import math

import pytest
import references as ref
import tiny_clip
import torch
from tiny_clip import IN, OUT, SIZE

from rood.attacks import PGD
from rood.detectors import CLIP, MCM, NegLabel, score_all
from rood.errors import InputError
from rood.goals import look_in, look_out
from rood.models.sources.clip import zero_shot
from rood.threat import Linf

WORDS = [*OUT, "moon", "house", "river", "stone"]


@pytest.fixture(scope="module", params=["save", "save_siglip"])
def folder(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield getattr(tiny_clip, request.param)(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def model(folder):
    return zero_shot(folder, inside=IN, outside=WORDS, prompt="the nice {}")


@pytest.fixture
def x():
    return torch.rand(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def cosines(model, x):
    f = model.double()(x.double()).features
    w = model.head.weight
    both = torch.stack([torch.stack([torch.cosine_similarity(a, b, dim=0) for b in w]) for a in f])
    return both.tolist()


def confidence(c, groups, temperature):
    """The paper's score: the mean over groups of the probability of the ID words, as written."""
    own = [math.exp(v / temperature) for v in c[: len(IN)]]
    shares = []
    for g in groups:
        others = [math.exp(c[len(IN) + j] / temperature) for j in g]
        shares.append(sum(own) / (sum(own) + sum(others)))
    return sum(shares) / len(shares)


@pytest.mark.parametrize("groups", [1, 3, 7, 100])
@pytest.mark.parametrize("temperature", [0.01, 0.05, 1.0])
def test_it_is_the_papers_mean_over_groups_as_log_odds(groups, temperature, model, x):
    d = NegLabel(model.double(), inside=len(IN), groups=groups, temperature=temperature)
    order, count = d.order.tolist(), min(groups, len(WORDS))
    assert sorted(order) == list(range(len(WORDS)))  # every OOD word is in one group
    size, more = divmod(len(WORDS), count)
    parts, i = [], 0
    for k in range(count):
        n = size + (k < more)
        parts.append(order[i : i + n])
        i += n
    for c, s in zip(cosines(model, x), d.score(x.double()).tolist(), strict=True):
        p = confidence(c, parts, temperature)
        assert s == pytest.approx(math.log((1 - p) / p), rel=1e-7, abs=1e-9)


def test_one_group_is_clips_sum_at_the_models_own_scale(folder, model, x):
    scale = float(model.head.weight[0].norm())
    d = NegLabel(model, inside=len(IN), groups=1, temperature=1 / scale)
    other = CLIP(model, inside=len(IN), combine="softmax_sum")
    ref.close(d.score(x), other.score(x).numpy(), rtol=1e-3)


def gradients(function, x):
    """The length of the gradient of each image."""
    x = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(function(x).sum(), x)
    return g.flatten(1).norm(dim=1)


def test_where_the_probability_is_zero_or_one_the_log_odds_go_on(model, x):
    d = NegLabel(model, inside=len(IN), temperature=1e-6, groups=1)
    s = d.score(x)
    p = s.sigmoid()
    assert ((p == 0) | (p == 1)).all()  # nothing is left of the probability in float32
    assert len(s.unique()) == len(x)
    assert (gradients(d.score, x) > 0).all()


def test_where_groups_disagree_for_certain_the_surrogate_has_a_gradient(model, x):
    d = NegLabel(model, inside=len(IN), temperature=1e-4, groups=7)
    (one,) = d.surrogates()
    assert (gradients(d.score, x) < 1e-6).any()  # a mean of zeros and ones
    assert (gradients(one, x) > 1).all()
    single = NegLabel(model, inside=len(IN), temperature=1e-4, groups=1)
    assert torch.equal(one(x), single.score(x))
    assert single.surrogates() == ()


def test_groups_are_drawn_by_the_seed_alone(model, x):
    make = lambda seed: NegLabel(model, inside=len(IN), groups=3, seed=seed)
    assert torch.equal(make(0).score(x), make(0).score(x))
    assert make(0).order.tolist() != make(1).order.tolist()


@pytest.mark.parametrize("size", [SIZE, 11])
@pytest.mark.parametrize(("goal", "sign"), [(look_in, -1), (look_out, 1)])
def test_an_attack_through_the_whole_tower_moves_every_score(goal, sign, size, model):
    g = torch.Generator().manual_seed(1)
    x = torch.rand(6, 3, size, size, generator=g)
    d = NegLabel(model, inside=len(IN), groups=3)
    found = PGD(steps=10, restarts=1)(goal(d), x, Linf(8 / 255), g)
    assert (found - x).abs().max() <= 8 / 255 + 1e-6
    assert (sign * (d.score(found) - d.score(x)) > 0).all()


def test_the_gradient_is_that_of_differences(model):
    d = NegLabel(model.double(), inside=len(IN), groups=3)
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(2)).double()
    x = (0.1 + 0.8 * x).requires_grad_()
    (g,) = torch.autograd.grad(d.score(x).sum(), x)
    assert (g != 0).all()
    with torch.no_grad():
        score = lambda v: d.score(torch.from_numpy(v)).tolist()
        want = ref.slopes(score, x.detach().numpy()[0])[None]
    ref.close(g, want, rtol=1e-3)


def test_the_detectors_of_one_model_share_its_forward_pass(model, x, monkeypatch):
    passes = []
    tower = model.net.clip.get_image_features
    count = lambda **given: passes.append(1) or tower(**given)
    model(x)  # the first pass looks for the head
    monkeypatch.setattr(model.net.clip, "get_image_features", count)
    n = len(IN)
    three = {"clip": CLIP(model, inside=n), "mcm": MCM(model, inside=n)}
    three["neglabel"] = NegLabel(model, inside=n)
    shared = score_all(three, x)
    assert len(passes) == 1
    for name, d in three.items():
        assert torch.allclose(shared[name], d.score(x)), name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inside": 0}, "ID words"),
        ({"inside": 9}, "ID words"),
        ({"temperature": 0.0}, "temperature above 0"),
        ({"groups": 0}, "groups >= 1"),
    ],
)
def test_what_cannot_be_is_refused(change, said, model):
    with pytest.raises(InputError, match=said):
        NegLabel(model, **({"inside": len(IN)} | change))
