"""torch.compile while a network is trained."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from toy_training import QUICK, new_model, toy

from rood.models.wrap import wrap
from rood.testing._support import as_in_production
from rood.training import compiled
from rood.training.compiled import Compiled
from rood.training.loop import train
from rood.training.objectives.adv import ADV


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
