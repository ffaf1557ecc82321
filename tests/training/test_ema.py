"""The running mean of the weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_training import QUICK, new_model, run, toy

from rood.models.model import Model
from rood.training.loop import accuracy_of


def weights(model: Model) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items() if v.is_floating_point()}


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
