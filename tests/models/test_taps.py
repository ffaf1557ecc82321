"""Looking inside a network: taps, stages, and one pass that serves many detectors."""

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from rood.detectors import MSP, Gram, LayeredMahalanobis, RankFeat, fit_all, score_all
from rood.errors import CapabilityError, UnknownNameError
from rood.models.taps import changing, watching
from rood.models.wrap import wrap


def hooks(net):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


class Block(nn.Module):
    """Pre-activation: norm, ReLU, convolution; a shortcut where the size changes."""

    def __init__(self, a, b, stride):
        super().__init__()
        self.norm = nn.BatchNorm2d(a)
        self.conv = nn.Conv2d(a, b, 3, stride, 1)
        self.short = nn.Conv2d(a, b, 1, stride)

    def forward(self, x):
        return self.conv(relu(self.norm(x))) + self.short(x)


class PreActivation(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.one = nn.Sequential(Block(4, 4, 1), Block(4, 4, 1))
        self.two = nn.Sequential(Block(4, 6, 2), Block(6, 6, 1))
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.ReLU()
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.act(self.norm(self.two(self.one(self.stem(x))))).mean(dim=(2, 3)))


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.act(self.second(self.act(self.first(x)))).mean(dim=(2, 3)))


def built(cls):
    torch.manual_seed(0)
    return wrap(cls())


# stages


def test_a_stage_ends_at_the_last_layer_of_each_size_of_map(world):
    assert world.model.stages(world.inside) == ("2", "5")  # Softplus at 8 x 8 and at 4 x 4


def test_the_last_stage_of_a_pre_activation_network_ends_behind_its_last_activation(world):
    assert built(PreActivation).stages(world.inside) == ("one", "act")


def test_a_stage_does_not_end_inside_a_block_that_a_shortcut_leads_around(world):
    torch.manual_seed(0)
    net = nn.Sequential(Block(3, 4, 1), Block(4, 6, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for whole in (net, nn.Sequential(net), nn.ModuleDict({"body": net})["body"]):
        names = wrap(nn.Sequential(whole, nn.Linear(6, 3))).stages(world.inside)
        assert [n.split(".")[-1] for n in names] == ["0", "1"]  # not norm of the second block


def test_a_network_of_vectors_has_no_stages(world):
    model = wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.ReLU(), nn.Linear(5, 3)))
    assert model.stages(world.inside) == ()
    with pytest.raises(CapabilityError, match="name layers"):
        LayeredMahalanobis(model).fit(world.train)


def test_a_layer_that_runs_twice_ends_no_stage(world):
    assert built(Reused).stages(world.inside) == ("first", "second")


def test_stages_that_shrink_come_first_stage_first(world):
    net = nn.Sequential(
        *(nn.Conv2d(3, 3, 2, 2), nn.ReLU()),
        *(nn.Conv2d(3, 3, 2, 2), nn.ReLU()),
        *(nn.Conv2d(3, 3, 2, 2), nn.ReLU()),  # one place only: no map any more
        nn.Flatten(),
        nn.Linear(3, 3),
    )
    assert wrap(net).stages(world.inside) == ("1", "3")


def test_stages_are_found_on_no_images_too(world):
    assert world.model.stages(world.inside[:0]) == ("2", "5")


def test_stages_leave_the_network_as_it_was(world):
    model = built(PreActivation)
    before = {n: v.clone() for n, v in model.state_dict().items()}
    model.stages(world.inside)
    assert hooks(model) == 0
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


# taps


def test_a_tap_gives_what_the_layer_returned(world):
    x = world.inside[:4]
    normal = (x - world.model.mean) / world.model.std
    out = world.model(x, ("0", "4"))
    assert torch.equal(out.maps[0], world.model.net[0](normal))
    assert torch.equal(out.maps[1], world.model.net[:5](normal))
    assert world.model(x).maps == ()


def test_a_reused_layer_gives_a_map_a_call(world):
    model = built(Reused)
    first, second, act, again = model(world.inside, ("first", "second", "act")).maps
    assert [m.shape[1:] for m in (act, again)] == [(4, 8, 8), (6, 4, 4)]
    assert torch.equal(act, first.relu())
    assert torch.equal(again, second.relu())


def test_what_is_done_in_place_afterwards_does_not_reach_the_map(world):
    first, second = built(Reused)(world.inside, ("first", "second")).maps
    assert first.min() < 0
    assert second.min() < 0


def test_gradients_flow_through_the_maps(world):
    x = world.inside[:2].clone().requires_grad_()
    for model in (world.model, built(Reused)):
        names = ("0",) if model is world.model else ("first", "act")
        for m in model(x, names).maps:
            (g,) = torch.autograd.grad(m.square().sum(), x, retain_graph=True)
            assert g.abs().sum() > 0


def test_an_unknown_layer_is_named_with_the_nearest_that_exists(world):
    model = built(PreActivation)
    with pytest.raises(UnknownNameError, match=r"no layer is called 'one.0.con'.*'one\.0\.conv'"):
        model(world.inside, ("one.0.con",))
    with pytest.raises(UnknownNameError, match="layer"):
        LayeredMahalanobis(model, layers=("three",)).fit(world.train)


def test_watching_and_changing_leave_no_hooks_even_after_an_error(world):
    net = world.model.net
    x = world.inside[:2]
    with watching([net[0], net[3]]) as (a, b):
        net(x)
    assert (len(a.outputs), len(b.inputs)) == (1, 1)
    with changing(net[5], torch.zeros_like):
        flat = net(x)
    assert torch.equal(flat, net[8].bias.expand_as(flat))
    assert not torch.equal(net(x), flat)

    def fail(_):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"), changing(net[2], fail):
        net(x)
    with pytest.raises(RuntimeError), watching([net[0]]):
        net(x[:, :2])
    assert hooks(net) == 0


def test_watching_tells_the_order_in_which_layers_ran(world):
    order = []
    model = built(Reused)
    net = model.net
    with watching([net.act, net.second, net.first], order):
        net(world.inside[:2])
    assert order == [2, 0, 1, 0]


# a shared pass


def count_passes(model, monkeypatch):
    calls = []
    forward = model.net.forward
    monkeypatch.setattr(model.net, "forward", lambda x: (calls.append(len(x)), forward(x))[1])
    return calls


def test_detectors_of_maps_share_one_pass_and_score_as_alone(world, monkeypatch):
    model = world.model
    detectors = {
        "gram": Gram(model).fit(world.train),
        "msp": MSP(model),
        "other gram": Gram(model, layers=("3",), orders=2).fit(world.train),
        "confidences": LayeredMahalanobis(model).fit(world.train).confidences,
    }
    alone = {name: d.score(world.inside) for name, d in detectors.items()}
    calls = count_passes(model, monkeypatch)
    together = score_all(detectors, world.inside)
    assert calls == [len(world.inside)]
    for name, s in together.items():
        assert torch.equal(s, alone[name]), name
    assert hooks(model) == 0


def test_scoring_all_counts_one_pass_more_for_each_detector_of_pixels(world, monkeypatch):
    model = world.model
    detectors = {
        "gram": Gram(model).fit(world.train),
        "layered": LayeredMahalanobis(model).fit(world.train),
        "msp": MSP(model),
    }
    alone = {name: d.score(world.outside) for name, d in detectors.items()}
    calls = count_passes(model, monkeypatch)
    together = score_all(detectors, world.outside)
    assert len(calls) == 2  # LayeredMahalanobis may step in pixels, so it has a pass of its own
    for name, s in together.items():
        assert torch.equal(s, alone[name]), name


def test_fitting_detectors_of_maps_costs_one_pass_over_the_data(world, monkeypatch):
    model = world.model
    model(world.inside)  # the first images settle which layer the head is
    model.stages(world.inside)
    calls = count_passes(model, monkeypatch)
    fit_all([Gram(model), LayeredMahalanobis(model), MSP(model)], world.train)
    assert calls == [len(x) for x, _ in world.train]


@pytest.mark.parametrize("layers", [None, ("act",), ("first", "act")])
@pytest.mark.parametrize("eta", [0.0, 1e-3])
def test_layered_mahalanobis_takes_a_layer_that_runs_twice(layers, eta, world):
    d = LayeredMahalanobis(built(Reused), layers=layers, eta=eta).fit(world.train)
    n = 3 if layers == ("first", "act") else 2
    assert d.terms(world.inside[:4]).shape == (4, n)
    assert d.weights_.tolist() == pytest.approx([-1 / n] * n)
    assert d.score(world.inside).isfinite().all()


def test_rankfeat_leaves_no_hooks(world):
    RankFeat(world.model).score(world.inside)
    assert hooks(world.model) == 0
