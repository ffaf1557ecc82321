"""A rerun never prints the numbers of another network, detector or attack."""

import copy
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_audit import small_command, small_files
from torch import nn
from toy_plan import assert_same, carried_out, manifest, toy_plan
from typer.testing import CliRunner

import rood
from rood.attacks.base import Attack
from rood.cli import app
from rood.detectors import MSP, Energy
from rood.detectors.base import OutputDetector
from rood.errors import ResultsError, RoodWarning
from rood.evaluation.behaviour import behaviour, probe_images, same
from rood.evaluation.engines import Local
from rood.numerics.softmax import margin
from rood.report import write_report
from rood.threat import Linf


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.delenv("ROOD_CACHE", raising=False)


class Counted(Local):
    """Lists the tasks that it does."""

    def __init__(self):
        self.did = []

    @contextmanager
    def opened(self, plan):
        with super().opened(plan) as perform:

            def listed(tasks, meter):
                for task, found in perform(tasks, meter):
                    self.did.append(task)
                    yield task, found

            yield listed


def scored_by(formula, **more):
    """A detector with this formula of the outputs; all of them have the same name and settings."""

    class Own(OutputDetector):
        def score_outputs(self, out):
            return formula(out)

    for name, value in more.items():
        setattr(Own, name, value)
    return Own


class Layers(nn.Module):
    """The layers of any network, with the same weights."""

    def __init__(self, activation=torch.relu, before=lambda x: x, noise=None):
        super().__init__()
        g = torch.Generator().manual_seed(3)
        self.hidden, self.head = nn.Linear(192, 12), nn.Linear(12, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(0.2 * torch.randn(p.shape, generator=g))
        self.activation, self.before, self.noise = activation, before, noise

    def forward(self, x):
        h = self.activation(self.hidden(self.before(x).flatten(1)))
        if self.noise is not None:
            h = h + 0.1 * torch.randn(12, generator=torch.Generator().manual_seed(self.noise))
        return self.head(h)


class Straight(torch.autograd.Function):
    """The identity, with another gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Noticing(OutputDetector):
    """A plain attribute that is no keyword argument of the constructor."""

    weight = 1.0

    def score_outputs(self, out):
        return margin(out.logits) + self.weight * out.logits[:, 0]


def attribute(model, weight):
    d = Noticing(model)
    d.weight = weight
    return d


def with_buffer(model, value):
    d = scored_by(lambda out: margin(out.logits) + d.shift * out.features[:, 0])(model)
    d.register_buffer("shift", torch.tensor(value), persistent=False)
    return d


def closure(temperature):
    return lambda out: -temperature * (out.logits / temperature).logsumexp(dim=1)


def net(**layers):
    return rood.wrap(Layers(**layers), mean=(0.4,) * 3, std=(0.25,) * 3)


def trained(model, on):
    model.net.train(on)
    return model


class Twice(nn.Module):
    """Depends on the mode."""

    def forward(self, h):
        return (1 + self.training) * h.relu()


THRESHOLD = lambda t: lambda h: torch.where(h > t, h, torch.zeros_like(h))


def own(*formulas):
    return lambda model: [scored_by(f)(model) for f in formulas]


# two detectors that settings cannot tell apart
PLANTED = {
    "formula": own(lambda o: margin(o.logits), lambda o: -o.logits.logsumexp(dim=1)),
    "sign": own(lambda o: margin(o.logits), lambda o: -margin(o.logits)),
    "temperature in a closure": own(closure(1.0), closure(3.0)),
    "small term": own(
        lambda o: margin(o.logits), lambda o: margin(o.logits) + 0.01 * o.logits[:, 1]
    ),
    "plain attribute": lambda m: [attribute(m, w) for w in (1.0, 1.1)],
    "undeclared buffer": lambda m: [with_buffer(m, v) for v in (0.0, 0.5)],
    "custom backward": own(lambda o: margin(o.logits), lambda o: margin(Straight.apply(o.logits))),
    "declared stochastic": lambda m: [
        scored_by(lambda o: margin(o.logits), stochastic=s)(m) for s in (False, True)
    ],
    "activation": lambda _: [MSP(net(activation=a)) for a in (torch.relu, torch.tanh)],
    "preprocessing": lambda _: [MSP(net(before=f)) for f in (lambda x: x, lambda x: x.flip(3))],
    "random seed of a layer": lambda _: [MSP(net(noise=s)) for s in (0, 1)],
    "threshold layer": lambda _: [MSP(net(activation=THRESHOLD(t))) for t in (0.0, 0.5)],
    "training mode": lambda _: [MSP(trained(net(activation=Twice()), on)) for on in (False, True)],
}


def plan_of(case, detector, **changes):
    usual = {"detectors": {"net": {"d": detector, "e": Energy(detector.model)}}, "threats": []}
    return toy_plan(case, **(usual | changes))


@pytest.mark.parametrize("planted", PLANTED)
def test_what_has_changed_is_measured_anew(case, tmp_path, planted):
    how = {"threats": [Linf(0.05)]} if planted == "custom backward" else {}  # else clean: quicker
    first, second = (plan_of(case, d, **how) for d in PLANTED[planted](case.model))
    assert first.settings() == second.settings()
    out = carried_out(first, tmp_path / "out")
    with pytest.warns(RoodWarning, match=r"^outputs, .*: results are measured anew$") as said:
        carried_out(second, out)
    assert len(said) == 1
    assert_same(out, carried_out(second, tmp_path / "fresh"))


@pytest.mark.parametrize("planted", ["sign", "custom backward", "activation"])
def test_what_a_cache_has_of_others_is_measured_anew(case, tmp_path, monkeypatch, planted):
    attacked = {"threats": [Linf(0.05)]}
    first, second = (plan_of(case, d, **attacked) for d in PLANTED[planted](case.model))
    fresh = carried_out(second, tmp_path / "fresh")
    monkeypatch.setenv("ROOD_CACHE", str(tmp_path / "cache"))
    carried_out(first, tmp_path / "first")
    assert_same(carried_out(second, tmp_path / "second"), fresh)
    again = Counted()
    assert_same(carried_out(second, tmp_path / "again", again), fresh)
    assert again.did == []


def test_a_gradient_that_is_cut_is_another_behaviour(case):
    formulas = (lambda o: margin(o.logits), lambda o: margin(o.logits.detach()))
    plans = [plan_of(case, scored_by(f)(case.model), threats=[Linf(0.05)]) for f in formulas]
    kept, cut = (behaviour(p.detectors, p.inside, p.attack, p.threats) for p in plans)
    assert not same(kept["net", "d"], cut["net", "d"])
    assert same(kept["net", "e"], cut["net", "e"])


def test_a_branch_that_no_probe_image_takes_is_another_behaviour(case):
    class Own(OutputDetector):
        def score_outputs(self, out):
            return margin(out.logits).clamp(max=1e6)

    first = Own

    class Own(OutputDetector):
        """The same but for a constant."""

        def score_outputs(self, out):
            return margin(out.logits).clamp(max=2e6)

    plans = [plan_of(case, cls(case.model)) for cls in (first, Own, Own)]
    found = [behaviour(p.detectors, p.inside, p.attack, p.threats) for p in plans]
    changed, again = (same(found[i]["net", "d"], found[1]["net", "d"]) for i in (0, 2))
    assert (changed, again) == (False, True)


def test_the_checksum_of_code_is_that_of_another_process(tmp_path):
    text = "from torch import nn\nclass Own(nn.Module):\n    def forward(self, x):\n"
    text += "        return x if self.kind in {'a', 'b', 'c', 'd'} else (lambda z: 2 * z)(x)\n"
    text += "from rood.evaluation.behaviour import code\nprint(code(Own()))\n"
    where = os.environ | {"PYTHONPATH": str(Path(rood.__file__).parents[1])}
    said = set()
    for seed in "123":
        command = [sys.executable, "-c", "\n" * int(seed) + text]
        env = where | {"PYTHONHASHSEED": seed}
        said.add(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    assert len(said) == 1


def test_detectors_that_have_not_changed_keep_their_results(case, tmp_path):
    first, second = (plan_of(case, d) for d in PLANTED["sign"](case.model))
    carried_out(first, tmp_path)
    engine = Counted()
    with pytest.warns(RoodWarning, match=r"^outputs, gradients or code of d on net differ"):
        carried_out(second, tmp_path, engine)
    assert {t.detectors for t in engine.did} == {("d",), ()}  # and the network's classes


def test_a_network_takes_all_its_detectors_with_it(case, tmp_path):
    first, second = (plan_of(case, d) for d in PLANTED["activation"](case.model))
    carried_out(first, tmp_path)
    engine = Counted()
    with pytest.warns(RoodWarning, match=r"of the network net differ from"):
        carried_out(second, tmp_path, engine)
    assert {d for t in engine.did for d in t.detectors} == {"d", "e"}


def test_no_old_row_outlives_a_kill(case, tmp_path):
    first, second = (plan_of(case, d) for d in PLANTED["activation"](case.model))
    carried_out(first, tmp_path)

    class Killed(Counted):
        @contextmanager
        def opened(self, plan):
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt), pytest.warns(RoodWarning):
        carried_out(second, tmp_path, Killed())
    assert not (tmp_path / "rows.jsonl").exists()
    assert not list(tmp_path.glob("scores/**/*.safetensors"))
    carried_out(second, tmp_path)


def test_another_version_of_a_package_measures_anew(case, tmp_path, monkeypatch):
    plan = plan_of(case, MSP(case.model))
    carried_out(plan, tmp_path)
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: "9.9" if n == "scipy" else real(n))
    engine = Counted()
    with pytest.warns(RoodWarning, match=r"was written with scipy .* \(now 9\.9\): results are"):
        carried_out(plan, tmp_path, engine)
    assert {d for t in engine.did for d in t.detectors} == {"d", "e"}
    assert manifest(tmp_path)["versions"]["scipy"] == "9.9"


@pytest.mark.parametrize("lost", ["behaviour", "manifest.json"])
def test_a_folder_that_does_not_say_enough_is_measured_anew(case, tmp_path, lost):
    plan = plan_of(case, MSP(case.model))
    carried_out(plan, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "fresh")
    gone = tmp_path / "out" / lost
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    with pytest.warns(RoodWarning, match="does not say"):
        carried_out(plan, tmp_path / "out")
    assert_same(tmp_path / "out", tmp_path / "fresh")


@dataclass(frozen=True, kw_only=True)
class Mine(Attack):
    """An attack of one's own; what it does hangs on a module's variable."""

    def climb(self, goal, x, threat, noise):
        return threat.project(x + STEP["size"], x)


STEP = {"size": 0.01}


def test_an_attack_of_ones_own_that_has_changed_measures_anew(case, tmp_path, monkeypatch):
    plan = plan_of(case, MSP(case.model), attack=Mine(), threats=[Linf(0.05)])
    carried_out(plan, tmp_path / "out")
    carried_out(plan, tmp_path / "out", engine := Counted())
    assert {t.detectors for t in engine.did} <= {()}
    monkeypatch.setitem(STEP, "size", -0.01)
    with pytest.warns(RoodWarning, match="of the attack differ from"):
        carried_out(plan, tmp_path / "out")
    assert_same(tmp_path / "out", carried_out(plan, tmp_path / "fresh"))


class Dropped(OutputDetector):
    """Random: by torch's generator, or by one of its own, which nobody can put back."""

    stochastic = True

    def __init__(self, model, *, own=False):
        super().__init__(model)
        self.own = own
        self.g = torch.Generator() if own else None

    def score_outputs(self, out):
        noise = torch.rand(len(out.logits), generator=self.g)
        return margin(out.logits) + 0.5 * noise


@pytest.mark.parametrize("own", [False, True])
def test_random_scores_go_on_and_are_noticed_when_they_change(case, tmp_path, own):
    detector = Dropped(case.model, own=own)
    plan = plan_of(case, detector)
    carried_out(plan, tmp_path)
    carried_out(plan, tmp_path, engine := Counted())
    assert {t.detectors for t in engine.did} == {()}
    detector.score_outputs = lambda out: 0.5 * torch.rand(len(out.logits), generator=detector.g)
    with pytest.warns(RoodWarning, match="d on net"):
        carried_out(plan, tmp_path)


def test_other_batches_and_threads_go_on(case, tmp_path):
    plan = toy_plan(case, detectors={"model": case.detectors})
    carried_out(plan, tmp_path)
    before = torch.get_num_threads()
    for threads, size in ((1, 7), (2, 3)):
        torch.set_num_threads(threads)
        try:
            carried_out(replace(plan, batch_size=size), tmp_path, engine := Counted())
        finally:
            torch.set_num_threads(before)
        assert {t.detectors for t in engine.did} == {()}


def test_other_rounding_goes_on(case):
    """Float64 differs from float32 by more than another device does."""
    plan = toy_plan(case, detectors={"model": case.detectors})
    double = copy.deepcopy(dict(case.detectors))
    for d in double.values():
        d.double()
    found = [
        behaviour({"model": ds}, plan.inside, plan.attack, plan.threats)
        for ds in (case.detectors, double)
    ]
    for key, single in found[0].items():
        assert (single["values"] != found[1][key]["values"]).any()
        assert same(single, found[1][key])


def measured(values, **more):
    about = {"about": np.array([1, 1, 0, 0])}
    return {"values": np.array(values, np.float64)[None], **about} | more


@given(
    st.lists(st.floats(-10, 10, width=16), min_size=3, max_size=20),
    st.sampled_from([1e-20, 1.0, 1e6]),
    st.floats(-3, 3),
)
def test_scale_and_shift_of_the_score_do_not_matter(values, scale, shift):
    old = np.array(values)
    spread = np.median(np.abs(old - np.median(old)))
    near, far = old + 1e-4 * spread, old + 1e-3 * (np.abs(old).max() + spread + 1)
    for new, wanted in ((near, True), (far, False)):
        turned = [scale * (v + shift) for v in (old, new)]
        assert same(*map(measured, turned)) is wanted


def test_equal_infinities_are_equal():
    infinite = measured([np.inf, -np.inf, np.nan, 1.0, 2.0])
    assert same(infinite, measured([np.inf, -np.inf, np.nan, 1.0, 2.0]))
    assert not same(infinite, measured([-np.inf, -np.inf, np.nan, 1.0, 2.0]))
    assert not same(infinite, measured([3.0, -np.inf, np.nan, 1.0, 2.0]))
    assert not same(measured([3.0, 1.0, 2.0]), measured([np.inf, 1.0, 2.0]))


def test_a_far_score_does_not_hide_a_change_of_the_others():
    assert not same(measured([1.0, 2.0, 3.0, 1e9]), measured([1.0, 2.1, 3.0, 1e9]))


def test_an_old_folder_is_reported_with_one_note(case, tmp_path):
    carried_out(plan_of(case, MSP(case.model)), tmp_path)
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).stderr == ""
    shutil.rmtree(tmp_path / "behaviour")
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stderr.startswith(f"note: {tmp_path} was written by a version of rood that did not")
    assert done.stderr.count("\n") == 1
    with pytest.warns(RoodWarning, match="measures anew"):
        write_report(tmp_path)


def test_the_command_says_it_in_one_line(tmp_path):
    command = small_command(small_files(tmp_path), tmp_path / "out", "--eps", "none")
    assert CliRunner().invoke(app, command).exit_code == 0
    facts = manifest(tmp_path / "out")
    facts["versions"]["torch"] = "1.0"
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(facts))
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert f"note: {tmp_path / 'out'} was written with torch 1.0 (now " in done.stderr
    assert CliRunner().invoke(app, command).stderr.count("measured anew") == 0


def test_two_runs_that_share_a_cache_at_the_same_time_do_not_mix(case, tmp_path, monkeypatch):
    monkeypatch.setenv("ROOD_CACHE", str(tmp_path / "cache"))
    first, second = (plan_of(case, d) for d in PLANTED["sign"](case.model))

    class Meanwhile(Counted):
        """The other run begins and ends while this one has done one task."""

        @contextmanager
        def opened(self, plan):
            with super().opened(plan) as perform:

                def listed(tasks, meter):
                    for i, done in enumerate(perform(tasks, meter)):
                        yield done
                        if i == 0:
                            carried_out(second, tmp_path / "second")

                yield listed

    with pytest.raises(ResultsError, match="another run with the same ROOD_CACHE"):
        carried_out(first, tmp_path / "first", Meanwhile())


def test_the_probe_images_are_images(case):
    inside = toy_plan(case).inside
    x = probe_images(inside)
    assert x.shape == (16, *inside.shape)
    assert 0 <= x.min() < x.max() <= 1
    assert torch.equal(x, probe_images(inside))
    assert len(probe_images(inside.thin(1))) == 9


def test_measuring_costs_nothing_and_leaves_the_generators_alone(case, tmp_path):
    plan = toy_plan(case)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    behaviour(plan.detectors, plan.inside, plan.attack, plan.threats)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
