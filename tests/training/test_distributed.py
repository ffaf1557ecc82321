"""Several processes train as one: torchrun over two of them, and one alone on the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import rood
from rood.data.base import ImageSet
from rood.errors import InputError
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.training.feed import Feed
from rood.training.loop import train
from rood.training.objectives import ALOE, TRADES, CrossEntropy, Objective
from rood.training.parallel import Rank
from rood.training.settings import Augment, Settings

OBJECTIVES: dict[str, Objective] = {
    "cross_entropy": CrossEntropy(),
    "aloe": ALOE(eps=0.05, steps=2, step=0.05),
    "trades": TRADES(eps=0.05, steps=2, step=0.05),
}
SETTINGS = Settings(
    epochs=2,
    batch_size=12,
    outlier_batch=20,
    lr=0.05,
    ema=0.9,
    augment=Augment(shift=1, flip=True, augmix=3),
)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images() -> tuple[ImageSet, ImageSet]:
    x = torch.rand(40, 1, 8, 8, generator=drawn(0))
    o = torch.rand(30, 1, 8, 8, generator=drawn(1))
    return ImageSet(name="in", images=x, labels=torch.arange(40) % 3), ImageSet("out", o)


def new_model(norm: bool = False, seed: int = 2) -> Model:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 3),
    )
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.1 * torch.randn(p.shape, generator=drawn(seed)))
    return wrap(net)


def trained(model: Model, name: str, out: Path | None = None) -> list[float]:
    data, outliers = images()
    epochs = train(model, OBJECTIVES[name], data, outliers=outliers, settings=SETTINGS, out=out)
    return [e.loss for e in epochs]


def in_each_process(folder: Path) -> None:
    """What torchrun runs: every objective, a run that is continued, one with batch norm."""
    rank = int(os.environ["RANK"])
    tensors: dict[str, Tensor] = {}
    losses = {}
    for name in OBJECTIVES:
        model = new_model(seed=2 + rank)  # the first process's weights are everybody's
        losses[name] = trained(model, name)
        tensors |= {f"{name}.{k}": v for k, v in model.state_dict().items()}
    data, outliers = images()
    for again in (False, True):
        model = new_model()
        epochs = train(
            model,
            OBJECTIVES["aloe"],
            data,
            outliers=outliers,
            settings=SETTINGS,
            out=folder / "run",
        )
        next(epochs)
        if again:
            list(epochs)
        epochs.close()
    tensors |= {f"continued.{k}": v for k, v in model.state_dict().items()}
    normed = new_model(norm=True)
    trained(normed, "aloe")
    tensors |= {f"normed.{k}": v for k, v in normed.state_dict().items()}
    save_file(tensors, folder / f"{rank}.safetensors")
    (folder / f"{rank}.json").write_text(json.dumps(losses))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes under torchrun left behind."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", __file__, str(folder)]
    environment = os.environ | {
        "PYTHONPATH": str(Path(rood.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_end_where_one_does(folder: Path, name: str) -> None:
    """Up to the order of a sum, without batch norm, whose statistics are each process's own."""
    alone = new_model()
    losses = trained(alone, name)
    found = part(load_file(folder / "0.safetensors"), name)
    for key, value in alone.state_dict().items():
        torch.testing.assert_close(found[key], value, atol=2e-6, rtol=1e-5)
    reported = json.loads((folder / "0.json").read_text())[name]
    assert reported == pytest.approx(losses, rel=1e-5)
    assert not torch.equal(found["net.4.weight"], new_model().state_dict()["net.4.weight"])


def test_all_processes_hold_the_same_weights_and_statistics(folder: Path) -> None:
    first, second = (load_file(folder / f"{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert torch.equal(value, second[key]), key
    assert (folder / "0.json").read_text() == (folder / "1.json").read_text()
    moved = first["normed.net.1.running_mean"]
    assert moved.abs().sum() > 0


def test_a_run_of_two_processes_is_continued(folder: Path) -> None:
    tensors = load_file(folder / "0.safetensors")
    for key, value in part(tensors, "aloe").items():
        assert torch.equal(value, tensors[f"continued.{key}"]), key
    assert sorted(f.name for f in (folder / "run").iterdir()) == [
        "epoch-0002.safetensors",
        "state.json",
    ]


def test_the_shares_of_a_batch_are_the_batch() -> None:
    data, outliers = images()
    whole = Feed(data, outliers, SETTINGS, torch.device("cpu")).batch(1, 2)
    shares = [
        Feed(data, outliers, SETTINGS, torch.device("cpu"), Rank(rank, 2)).batch(1, 2)
        for rank in (0, 1)
    ]
    for all_of_it, *parts in zip(whole[:3], *(s[:3] for s in shares), strict=True):
        assert all_of_it is not None
        for rank, share in enumerate(parts):
            assert share is not None
            torch.testing.assert_close(share, all_of_it[rank::2], atol=1e-6, rtol=0)


def test_a_batch_that_cannot_be_shared_evenly_is_refused() -> None:
    with pytest.raises(InputError, match="8 processes can share evenly, got 12 images"):
        Feed(*images(), SETTINGS, torch.device("cpu"), Rank(0, 8))


if __name__ == "__main__":
    torch.set_num_threads(1)
    in_each_process(Path(sys.argv[1]))
