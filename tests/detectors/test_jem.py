"""JEM: the sampler on a density that is known, the replay buffer, the guards, exact resume."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import references as ref
import torch
from references import close
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from toy_training import SIDE, drawn, toy

from rood.data.base import ImageSet
from rood.detectors import JEM as Detector
from rood.detectors import MSP, Energy
from rood.errors import CheckpointError, InputError, RoodError
from rood.models import backbones
from rood.models.generative.sgld import log_density, sampled
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.testing import World
from rood.testing._support import as_in_production
from rood.training import objectives
from rood.training.loop import train
from rood.training.objectives import Batch, Objective
from rood.training.objectives.jem import JEM, Replay
from rood.training.settings import Settings

SHORT = JEM(steps=4, replay=60)
QUICK = Settings(epochs=3, batch_size=30, optimizer="adam", lr=2e-3, weight_decay=0.0)
REMEMBERING = [n for n in objectives.registry.names() if objectives.registry.cls(n).has_memory]


def leaky(seed: int = 0, width: int = 4) -> Model:
    settings = {"classes": 3, "channels": 1, "width": width, "features": 8}
    net = backbones.create("leaky_cnn", seed=seed, **settings)
    return wrap(net, mean=[0.5], std=[0.5])


def batch(n: int = 12) -> Batch:
    images = toy(n)
    assert images.labels is not None
    return Batch(images.pixels(), images.labels)


# the sampler


def test_chains_end_up_spread_as_the_density_is() -> None:
    """Of N(0.5, 0.1^2), with steps of half the noise's variance, as the theory has them."""
    x = torch.rand(2000, 1, 1, 1, generator=drawn(0))
    density = lambda x: -((x - 0.5) ** 2).flatten(1).sum(dim=1) / (2 * 0.1**2)
    settings = {"steps": 300, "noise": 0.03, "step": 0.03**2 / 2}
    found = sampled(density, x, **settings, source=drawn(1))
    assert found.mean().item() == pytest.approx(0.5, abs=0.01)
    assert found.std().item() == pytest.approx(0.1, rel=0.07)


def test_samples_stay_images_and_depend_on_the_source_alone() -> None:
    density = lambda x: 10 * x.flatten(1).sum(dim=1)
    x = torch.rand(4, 1, 3, 3, generator=drawn(0))
    settings = {"steps": 3, "noise": 0.5, "step": 0.01}
    first, again, other = (sampled(density, x, **settings, source=drawn(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.min() >= 0
    assert first.max() == 1
    assert not first.requires_grad
    assert x.grad is None


def test_no_pixel_goes_further_than_it_may() -> None:
    density = lambda x: (torch.linspace(-2, 2, 9) * x.flatten(1)).sum(dim=1)
    x = torch.full((1, 1, 3, 3), 0.5)
    settings = {"steps": 1, "noise": 0.0, "step": 0.1, "reach": 0.08}
    moved = (sampled(density, x, **settings, source=drawn(0)) - x).flatten()
    torch.testing.assert_close(moved, (0.1 * torch.linspace(-2, 2, 9)).clamp(-0.08, 0.08))


def test_without_noise_chains_climb() -> None:
    model, x = leaky(), torch.rand(6, 1, SIDE, SIDE, generator=drawn(0))
    with torch.no_grad():  # whatever the caller does
        after = sampled(
            lambda x: log_density(model, x), x, steps=10, step=0.05, noise=0, source=drawn(1)
        )
    assert (log_density(model, after) > log_density(model, x)).all()


# the replay buffer


def begun(objective: JEM = SHORT) -> tuple[Model, Replay]:
    model = leaky().train().requires_grad_()
    return model, objective.begin(model, batch(), drawn(0))


def test_the_buffer_begins_with_even_noise() -> None:
    _, replay = begun(JEM(replay=500))
    assert replay.chains.shape == (500, 1, SIDE, SIDE)
    assert replay.chains.min() >= 0
    assert replay.chains.max() <= 1
    assert replay.chains.std().item() == pytest.approx(1 / math.sqrt(12), rel=0.02)


def test_only_chains_that_went_on_move_each_once() -> None:
    model, replay = begun()
    before = replay.chains.clone()
    SHORT.sample(model, replay, 20, drawn(1))
    moved = (replay.chains != before).flatten(1).any(dim=1)
    assert moved.sum() == 20
    assert len(replay.drawn(60, drawn(2)).unique()) == 60


@pytest.mark.parametrize("fresh", [0.0, 1.0])
def test_chains_go_on_or_begin_anew(fresh: float) -> None:
    objective = JEM(steps=1, step=1e-9, noise=0, fresh=fresh, replay=20)
    model, replay = begun(objective)
    before = replay.chains.clone()
    objective.sample(model, replay, 20, drawn(1))
    near = (replay.chains - before).abs().flatten(1).amax(dim=1) < 1e-4
    assert near.all() if fresh == 0 else not near.any()


@pytest.mark.parametrize("chains_kept", [12, 3])
def test_the_loss_is_the_formula_also_with_fewer_chains_than_images(chains_kept: int) -> None:
    """With chains that hardly move, all of them drawn, and no noise on the images."""
    still = JEM(steps=1, step=1e-12, noise=0, blur=0, fresh=0, weight=0.7, calm=0.1)
    objective = replace(still, replay=chains_kept)
    model, replay = begun(objective)
    chains, given = replay.chains.clone(), batch()
    loss = objective.loss(model, given._replace(memory=replay), drawn(0))
    z, z_chains = model(given.x).logits, model(chains).logits
    f, g = (torch.log(v.exp().sum(dim=1)) for v in (z, z_chains))
    density = g.mean() - f.mean() + 0.1 * (f.square().mean() + g.square().mean())
    expected = cross_entropy(z, given.y) + 0.7 * density
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_network_learns_nothing_while_chains_move() -> None:
    model, replay = begun()
    SHORT.sample(model, replay, 20, drawn(1))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(m.training for m in model.modules())


# training


def test_a_density_and_classes_are_learnt_together() -> None:
    model, settings = leaky(), replace(QUICK, epochs=10, lr=5e-3)
    records = list(train(model, SHORT, toy(), held_out=toy(30, 1), settings=settings))
    assert records[-1].accuracy > 0.9
    even = torch.rand(30, 1, SIDE, SIDE, generator=drawn(9))
    inside, outside = (log_density(model, x).mean() for x in (toy(30, 1).pixels(), even))
    assert inside > outside + 1


@pytest.mark.parametrize("name", REMEMBERING)
def test_what_is_kept_from_step_to_step_survives_a_stop(name: str, tmp_path: Path) -> None:
    """Both ways bit by bit: the weights, and all that the objective keeps."""
    objective: Objective = objectives.registry.cls(name).example()  # type: ignore[attr-defined]
    others = ImageSet(name="others", images=toy(60, 5).images.flip(2))
    ends = []
    for folder, stops in ((tmp_path / "whole", ()), (tmp_path / "stopped", (1, 2))):
        run = lambda folder=folder: train(
            leaky(), objective, toy(), outliers=others, settings=QUICK, out=folder
        )
        for stop in stops:
            epochs = run()
            for _ in range(stop):
                next(epochs)
            epochs.close()
        list(run())
        ends.append(sorted(folder.glob("*.safetensors"))[-1].read_bytes())
    assert ends[0] == ends[1]
    assert b"memory." in ends[0]
    assert b"second." in ends[0]


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from rood.training import loop
    from rood.training.parallel import Rank

    monkeypatch.setattr(loop, "join", lambda device: (Rank(0, 2), device))
    monkeypatch.setattr(Rank, "agree", lambda self, model: None)
    with pytest.raises(InputError, match=r"expected one process for jem.*got 2"):
        next(train(leaky(), SHORT, toy(), settings=QUICK))


def test_another_buffer_in_the_same_folder_is_named(tmp_path: Path) -> None:
    next(train(leaky(), SHORT, toy(), settings=QUICK, out=tmp_path))
    other = JEM(steps=4, replay=61)
    with pytest.raises(CheckpointError, match=r"objective.replay was 60, now 61"):
        next(train(leaky(), other, toy(), settings=QUICK, out=tmp_path))


# guards


def test_chains_that_run_away_stop_the_training_in_one_sentence(tmp_path: Path) -> None:
    wild = Settings(epochs=5, batch_size=30, optimizer="adam", lr=3.0, weight_decay=0.0)
    with pytest.raises(RoodError, match=r"broke down in epoch \d, the (samples ran away|loss is)"):
        list(train(leaky(), SHORT, toy(), settings=wild, out=tmp_path))


@pytest.mark.parametrize(
    ("chains", "f", "said"),
    [
        (torch.rand(9, 1, 4, 4), 12.0, None),
        (torch.full((9, 1, 4, 4), 0.3), 12.0, "the samples are all alike"),
        (torch.rand(9, 1, 4, 4), -2e4, "the samples ran away to a log density of 2e+04"),
        (torch.rand(9, 1, 4, 4), math.nan, "the samples ran away to a log density of nan"),
    ],
)
def test_the_buffer_says_what_is_wrong_with_it(chains: Tensor, f: float, said: str | None) -> None:
    replay = Replay(chains)
    replay.note(torch.tensor([0.0, f]))
    assert SHORT.wrong(replay) == said


def test_the_largest_density_is_that_of_the_epoch() -> None:
    replay = Replay(torch.rand(9, 1, 4, 4))
    replay.note(torch.tensor([1e5]))
    assert "ran away" in (replay.wrong() or "")
    replay.note(torch.tensor([1.0]))
    assert replay.wrong() is None


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"steps": 0}, "steps >= 1"),
        ({"replay": 0}, "replay >= 1"),
        ({"step": 0.0}, "step > 0"),
        ({"calm": -1.0}, "calm, noise, blur >= 0"),
        ({"reach": 0.0}, "reach > 0"),
        ({"fresh": 1.5}, "0 <= fresh <= 1"),
    ],
)
def test_settings_that_make_no_objective_are_refused(values: dict[str, float], match: str) -> None:
    with pytest.raises(InputError, match=match):
        JEM(**values)


# the scores


def test_two_of_the_scores_are_those_of_other_detectors(world) -> None:
    x = torch.cat([world.inside, world.outside])
    assert torch.equal(Detector.density(world.model).score(x), Energy(world.model).score(x))
    assert torch.equal(Detector.softmax(world.model).score(x), MSP(world.model).score(x))


def test_the_slope_of_a_linear_network_is_known() -> None:
    """One class far above the other: f is its logit, whose slope is the row of its weights."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with torch.no_grad():
        net[1].weight.copy_(torch.randn(2, 16, generator=drawn(3)))
        net[1].bias.copy_(torch.tensor([90.0, 0.0]))
    model = wrap(net, mean=[0.5], std=[0.5])
    x = torch.rand(5, 1, 4, 4, generator=drawn(4))
    expected = math.log(net[1].weight[0].norm().item() / 0.5)
    assert Detector.mass(model).score(x).tolist() == pytest.approx([expected] * 5, rel=1e-5)


def test_an_unknown_kind_is_refused(world) -> None:
    said = pytest.raises(InputError, match="density, softmax or gradient, got 'mass'")
    with as_in_production(), said:
        Detector(world.model, kind="mass")


H = 1e-6


@pytest.mark.parametrize(
    ("make", "reference"),
    [(Detector.density, lambda z: -ref.lse(z)), (Detector.softmax, ref.margin)],
)
def test_jem_of_the_logits_equals_the_reference(double: World, make, reference) -> None:
    x = torch.cat([double.inside[:10], double.outside[:10]])
    expected = [reference(z) for z in double.model(x).logits.numpy()]
    close(make(double.model).score(x), expected)


def test_the_slope_of_jem_equals_differences_pixel_by_pixel(double: World) -> None:
    x = double.inside[:2]
    f = lambda x: np.array([ref.lse(z) for z in double.model(x).logits.numpy()])
    squared = np.zeros(len(x))
    for i in range(x[0].numel()):
        step = torch.zeros_like(x)
        step.view(len(x), -1)[:, i] = H
        squared += ((f(x + step) - f(x - step)) / (2 * H)) ** 2
    np.testing.assert_allclose(Detector.mass(double.model).score(x), np.log(squared) / 2, rtol=1e-5)
