"""States on disk: how often, and what a kill leaves."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_training import QUICK, new_model, run

from rood.errors import CheckpointError, RoodError
from rood.models import checkpoint
from rood.training import state


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
    card = json.loads((tmp_path / "state.json").read_text())
    assert card["file"] == "epoch-0002.safetensors"
    assert len(list(run(new_model(), settings, tmp_path))) == 6


KILLED = """
import sys, torch
from pathlib import Path
from dataclasses import replace
torch.set_num_threads(1)
from safetensors.torch import load_file, save_file
from toy_training import QUICK, new_model, run
for epoch in run(new_model(), replace(QUICK, epochs=15, ema=0.9), Path(sys.argv[1])):
    print(epoch.epoch, flush=True)
"""


def test_kill_9_at_any_moment_leaves_a_run_that_ends_the_same(tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=15, ema=0.9)
    undisturbed = new_model()
    list(run(undisturbed, settings))
    out = tmp_path / "run"
    for wait in (0.0, 0.013):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(out)],
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


def edited(folder: Path, **values: object) -> None:
    path = folder / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("values", [{"epochs": []}, {"sha256": "0"}, {state.SEAL: "0"}])
def test_an_edited_state_is_refused(tmp_path: Path, values: dict[str, object]) -> None:
    settings = replace(QUICK, epochs=2)
    epochs = run(new_model(), settings, tmp_path)
    next(epochs)
    epochs.close()
    edited(tmp_path, **values)
    with pytest.raises(CheckpointError, match=r"was changed: .* remove .* and train again"):
        list(run(new_model(), settings, tmp_path))


def test_a_state_of_another_network_or_of_nothing_is_refused(tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=2)
    epochs = run(new_model(), settings, tmp_path)
    next(epochs)
    epochs.close()
    (file,) = tmp_path.glob("epoch-*")
    whole = load_file(file)
    for tensors, words in (
        ({k: v for k, v in whole.items() if k != "model.net.head.bias"}, "lacks"),
        ({k: v[:1] if k.startswith("momentum") else v for k, v in whole.items()}, "of shape"),
        (whole | {"more": torch.zeros(1)}, "has no place"),
    ):
        save_file({k: v.contiguous() for k, v in tensors.items()}, file)
        card = json.loads((tmp_path / "state.json").read_text())
        card["sha256"] = checkpoint.sha256_of(file)
        (tmp_path / "state.json").write_bytes(checkpoint.sealed(card, state.SEAL))
        with pytest.raises(CheckpointError, match=words):
            list(run(new_model(), settings, tmp_path))
