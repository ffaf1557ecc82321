"""What each epoch measures, and that no step waits for the GPU."""

import traceback
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from toy_training import QUICK, drawn, new_model, toy

from rood.errors import InputError
from rood.testing._support import example as as_example
from rood.training import loop, objectives
from rood.training.ema import EMA
from rood.training.feed import Feed
from rood.training.loop import accuracy_of, robust_accuracy_of, train
from rood.training.objectives import ADV, CrossEntropy, Objective
from rood.training.settings import Augment, Settings
from rood.training.state import State


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
