"""What a run may ask for besides: averaged weights, fewer states, robust accuracy, compiling."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_training
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode
from toy_training import QUICK, drawn, new_model, run, toy

from rood.errors import InputError, RoodError
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.testing._support import as_in_production
from rood.testing._support import example as as_example
from rood.training import compiled, loop, objectives
from rood.training.compiled import Compiled
from rood.training.ema import EMA
from rood.training.feed import Feed
from rood.training.loop import accuracy_of, robust_accuracy_of, train
from rood.training.objectives import Objective
from rood.training.objectives.adv import ADV
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.settings import Augment, Settings
from rood.training.state import State


def weights(model: Model) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items() if v.is_floating_point()}


# --- averaged weights ---


def test_the_delivered_weights_are_the_running_mean_of_all_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Written out over the weights that the optimiser left after each step."""
    plain, after = new_model(), [weights(new_model())]
    step = torch.optim.SGD.step

    def noted(self, closure=None):
        result = step(self, closure)
        after.append(weights(plain))
        return result

    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.SGD, "step", noted)
        list(run(plain, QUICK))
    assert len(after) == 1 + 4 * 3
    mean = after[0]
    for t, now in enumerate(after[1:]):
        decay = min(0.6, (1 + t) / (10 + t))
        mean = {k: decay * mean[k] + (1 - decay) * now[k] for k in mean}
    averaged = new_model()
    records = list(run(averaged, replace(QUICK, ema=0.6)))
    for name, value in weights(averaged).items():
        torch.testing.assert_close(value, mean[name], atol=1e-6, rtol=1e-5)
    assert records[-1].accuracy == accuracy_of(averaged, toy(30, 9))
    assert averaged.fingerprint() != plain.fingerprint()


def test_averaging_does_not_disturb_the_steps_and_each_record_shows_the_mean() -> None:
    losses = [[e.loss for e in run(new_model(), replace(QUICK, ema=d))] for d in (0.0, 0.9)]
    assert losses[0] == losses[1]
    model = new_model()
    for record in run(model, replace(QUICK, ema=0.9)):
        assert accuracy_of(model, toy(30, 9)) == record.accuracy


def test_the_mean_is_part_of_the_state(tmp_path: Path) -> None:
    settings = replace(QUICK, ema=0.8)
    undisturbed = new_model()
    list(run(undisturbed, settings))
    first = new_model()
    epochs = run(first, settings, tmp_path)
    next(epochs), next(epochs)
    shown = first.fingerprint()
    epochs.close()
    assert first.fingerprint() == shown  # the mean is delivered, also where one stops early
    second = new_model()
    assert len(list(run(second, settings, tmp_path))) == 4
    assert second.fingerprint() == undisturbed.fingerprint() != first.fingerprint()
    third = new_model()
    list(run(third, settings, tmp_path))
    assert third.fingerprint() == undisturbed.fingerprint()


# --- states on disk ---


def test_fewer_states_are_kept_and_a_run_goes_on_from_the_last(tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=5, save_every=2)
    undisturbed = new_model()
    list(run(undisturbed, settings))
    kept = []
    epochs = run(new_model(), settings, tmp_path)
    for _ in range(3):
        next(epochs)
        kept.append(sorted(f.name for f in tmp_path.glob("epoch-*")))
    epochs.close()
    assert kept == [[], ["epoch-0002.safetensors"], ["epoch-0002.safetensors"]]
    again = new_model()
    more = replace(settings, save_every=3, robust=0)  # what is kept may change
    assert [e.epoch for e in run(again, more, tmp_path)] == [1, 2, 3, 4, 5]
    assert again.fingerprint() == undisturbed.fingerprint()
    assert [f.name for f in tmp_path.glob("epoch-*")] == ["epoch-0005.safetensors"]


def test_a_break_down_names_the_epoch_that_was_kept(tmp_path: Path) -> None:
    """A weight turns NaN after epoch 3, while epoch 2 was the last kept."""
    settings = replace(QUICK, epochs=6, save_every=2)
    model = new_model()
    epochs = run(model, settings, tmp_path)
    for _ in range(3):
        next(epochs)
    with torch.no_grad():
        model.head.bias.fill_(math.nan)
    with pytest.raises(RoodError, match=r"in epoch 4, the loss is nan: .* after epoch 2 kept in"):
        next(epochs)
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["file"] == "epoch-0002.safetensors"
    assert len(list(run(new_model(), settings, tmp_path))) == 6


HELPERS = Path(toy_training.__file__).parent
KILLED = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from dataclasses import replace
torch.set_num_threads(1)
from toy_training import QUICK, new_model, run
for epoch in run(new_model(), replace(QUICK, epochs=15, ema=0.9), Path(sys.argv[2])):
    print(epoch.epoch, flush=True)
"""


def test_kill_9_at_any_moment_leaves_a_run_that_ends_the_same(tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=15, ema=0.9)
    undisturbed = new_model()
    list(run(undisturbed, settings))
    out = tmp_path / "run"
    for wait in (0.0, 0.013):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(HELPERS), str(out)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    continued = new_model()
    assert len(list(run(continued, settings, out))) == 15
    assert continued.fingerprint() == undisturbed.fingerprint()


# --- robust accuracy ---


def test_robust_accuracy_is_measured_where_it_is_asked_for() -> None:
    model = new_model()
    settings = replace(QUICK, epochs=6, batch_size=15, robust=20)
    objective = ADV(eps=0.1, steps=3, step=0.05)
    records = list(train(model, objective, toy(), held_out=toy(60, 9), settings=settings))
    last = records[-1]
    assert last.robust_accuracy == robust_accuracy_of(model, toy(60, 9).thin(20), 0.1)
    assert last.accuracy is not None
    assert 0 < last.robust_accuracy <= 1
    accuracies = [robust_accuracy_of(model, toy(60, 9), eps) for eps in (0.0, 0.1, 0.5)]
    assert accuracies[0] == accuracy_of(model, toy(60, 9)) >= accuracies[1] > accuracies[2]
    without = train(new_model(), objective, toy(), held_out=toy(60, 9), settings=QUICK)
    assert next(without).robust_accuracy is None


def test_robust_accuracy_needs_an_eps_and_images() -> None:
    settings = replace(QUICK, robust=20)
    with pytest.raises(InputError, match="an objective with an eps"):
        train(new_model(), CrossEntropy(), toy(), held_out=toy(30), settings=settings)
    with pytest.raises(InputError, match="expected held-out images"):
        train(new_model(), ADV(), toy(), settings=settings)


# --- compiling ---


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # dynamo's own
def test_compiled_training_is_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the code generator, which takes a minute: the graphs are what can go wrong."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    counters.clear()
    settings = replace(QUICK, epochs=2)
    models = new_model(), new_model()
    objective = ADV(eps=0.05, steps=2, step=0.05)
    with as_in_production():  # what checks the shapes would be traced too
        for model, wanted in zip(models, (False, True), strict=True):
            list(train(model, objective, toy(), settings=replace(settings, compile=wanted)))
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert all(m._compiled_call_impl is None for m in models[1].modules())
    assert counters["stats"]["unique_graphs"] == 2  # to search in eval mode, to learn in train mode
    assert not counters["graph_break"]


def test_what_is_compiled_is_all_but_the_way_to_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    body, layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), nn.Sequential(nn.Flatten())
    net = nn.Sequential(body, nn.ReLU(), nn.Sequential(layers, nn.Linear(72, 3)))
    model = wrap(net)
    assert [part for part, _ in Compiled(model, True).calls] == [body, layers]
    assert Compiled(model, False).calls == []


# --- no step waits for the GPU ---


class Waits(TorchDispatchMode):
    """Which lines of rood's training read a tensor's value, for which a GPU must have finished."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in READS:
            ours = [f for f in traceback.extract_stack() if "/src/rood/" in f.filename]
            if "/training/" in ours[-1].filename:
                self.lines.add(ours[-1].line or "")
        return func(*args, **(kwargs or {}))


READS = {torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.equal}
SHIFTED = Settings(batch_size=15, ema=0.9, augment=Augment(shift=1, flip=True, augmix=3.0))


def example(name: str) -> Objective:
    return as_example(objectives.registry.get(name))()


@pytest.mark.parametrize("name", objectives.registry.names())
def test_only_the_end_of_an_epoch_reads_a_value(name: str) -> None:
    objective, feed = example(name), Feed(toy(30), toy(40, 3), SHIFTED, torch.device("cpu"))
    model = getattr(objective, "example_model", lambda m: m)(new_model())
    optimizer, average = loop._optimizer(model, SHIFTED, feed.device), EMA(model, 0.9)
    now = State(model, optimizer, average, loop._begin(model, objective, feed))
    loop._try_out(model, feed)
    with Waits() as waits:
        loop._one_epoch(now, loop._passes(now, objective, feed), feed, 1)
    assert waits.lines == {"return total.item() / feed.steps"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", objectives.registry.names())
def test_no_step_waits_for_the_gpu(name: str) -> None:
    device, objective = torch.device("cuda"), example(name)
    model, feed = (
        getattr(objective, "example_model", lambda m: m)(new_model()),
        Feed(toy(), toy(40, 3), SHIFTED, device),
    )
    optimizer = loop._optimizer(model, SHIFTED, device)
    average = EMA(model, 0.9)
    loop._try_out(model, feed)
    memory = loop._begin(model, objective, feed)
    for step in range(4):
        torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
        try:
            batch = feed.batch(1, step)._replace(memory=memory)
            with torch.autocast("cuda", torch.bfloat16):
                loss = objective.loss(model.train(), batch, drawn(step))
            loss.backward()
            optimizer.step()
            average.see(model, step)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_passes_are_in_bfloat16_on_a_gpu_where_that_is_wanted(monkeypatch):
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert loop._in_half(Settings(), gpu)
    assert not loop._in_half(Settings(half=False), gpu)
    assert not loop._in_half(Settings(), cpu)
    data = toy()

    def weights() -> Tensor:
        model = new_model()
        list(train(model, CrossEntropy(), data, settings=replace(QUICK, epochs=1)))
        return model.head.weight

    whole = weights()
    monkeypatch.setattr(loop, "_in_half", lambda settings, device: True)
    half = weights()
    assert half.dtype == torch.float32
    assert 0 < (half - whole).abs().max() < 0.05
