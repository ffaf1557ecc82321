"""A loop that learns, stops, continues and says what is wrong; recipes that use it."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from refusals import refused
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from toy_training import SIDE, drawn, new_model, toy

from rood.data.base import ImageSet
from rood.errors import CheckpointError, InputError, RoodError
from rood.models import backbones
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.numerics.softmax import uniform_cross_entropy
from rood.seeds import generator
from rood.training.feed import Feed
from rood.training.loop import Epoch, accuracy_of, train
from rood.training.objectives import ALOE, Batch, CrossEntropy, Objective
from rood.training.settings import Augment, Settings


def noise(n: int = 40, seed: int = 1) -> ImageSet:
    x = torch.randint(0, 256, (n, 1, SIDE, SIDE), generator=drawn(seed))
    return ImageSet(name="noise", images=x.to(torch.uint8))


# --- the loop ---

QUICK = Settings(epochs=4, batch_size=30, lr=0.1, augment=Augment(shift=1))


def test_the_loop_learns_and_reports() -> None:
    model = new_model()
    settings = Settings(epochs=8, batch_size=15, lr=0.1, warmup=0.2)
    records = list(train(model, CrossEntropy(), toy(), held_out=toy(30, 9), settings=settings))
    assert [r.epoch for r in records] == list(range(1, 9))
    assert {r.epochs for r in records} == {8}
    assert records[-1].loss < 0.5 * records[0].loss
    assert records[-1].accuracy == accuracy_of(model, toy(30, 9)) > 0.9
    assert records[-1].lr < records[2].lr <= 0.1
    assert all(r.seconds > 0 for r in records)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())


def test_aloe_pushes_outliers_to_the_uniform_prediction() -> None:
    settings = Settings(epochs=6, batch_size=15, lr=0.1, weight_decay=0.0)
    far = []
    for objective in (CrossEntropy(), ALOE(eps=0.02, steps=2, step=0.02)):
        model = new_model()
        list(train(model, objective, toy(), outliers=noise(), settings=settings))
        far.append(uniform_cross_entropy(model(noise().pixels()).logits).mean() - math.log(3))
        assert accuracy_of(model, toy(30, 9)) > 0.9
    assert far[1] < 0.5 * far[0]


@pytest.mark.parametrize("objective", [CrossEntropy(), ALOE(eps=0.05, steps=2, step=0.05)])
def test_a_run_that_was_stopped_ends_with_the_same_weights(
    objective: Objective, tmp_path: Path
) -> None:
    def run(model: Model, out: Path | None) -> Iterator[Epoch]:
        return train(model, objective, toy(), outliers=noise(), settings=QUICK, out=out)

    undisturbed = new_model()
    expected = list(run(undisturbed, None))
    first = new_model()
    epochs = run(first, tmp_path)
    next(epochs), next(epochs)
    epochs.close()
    assert not first.training
    second = new_model()
    torch.rand(5)  # the global generator has no part in it
    records = list(run(second, tmp_path))
    assert second.fingerprint() == undisturbed.fingerprint() != first.fingerprint()
    assert [(r.epoch, r.loss) for r in records] == [(r.epoch, r.loss) for r in expected]
    third = new_model()
    assert len(list(run(third, tmp_path))) == 4
    assert third.fingerprint() == undisturbed.fingerprint()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["epoch-0004.safetensors", "state.json"]


def test_the_seed_matters_and_the_global_generator_does_not() -> None:
    prints = []
    before = torch.random.get_rng_state()
    for seed in (0, 0, 1):
        model = new_model()
        list(train(model, CrossEntropy(), toy(), settings=Settings(epochs=1, seed=seed)))
        prints.append(model.fingerprint())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert prints[0] == prints[1] != prints[2]


def test_other_settings_in_the_same_folder_are_named(tmp_path: Path) -> None:
    list(train(new_model(), CrossEntropy(), toy(), settings=QUICK, out=tmp_path))
    other = Settings(epochs=5, batch_size=30, lr=0.1, augment=Augment(shift=2))
    with pytest.raises(CheckpointError) as caught:
        next(train(new_model(1), CrossEntropy(), toy(60), settings=other, out=tmp_path))
    text = str(caught.value)
    for key in ("settings.epochs was 4, now 5", "settings.augment.shift was 1, now 2", "data was"):
        assert key in text
    assert "start was" in text
    assert "batch_size" not in text
    robust = ALOE(eps=0)
    with pytest.raises(
        CheckpointError, match=r"objective.name was \"cross_entropy\", now \"aloe\""
    ):
        next(train(new_model(), robust, toy(), outliers=noise(), settings=QUICK, out=tmp_path))


@dataclass(frozen=True, kw_only=True)
class Breaks(Objective):
    """Cross-entropy that is NaN from the third epoch on."""

    def compute(self, model: Model, batch: Batch, generator: torch.Generator) -> Tensor:
        loss = cross_entropy(model(batch.x).logits, batch.y)
        count = int(next(b for n, b in model.named_buffers() if n.endswith("tracked")))
        return loss * float("nan") if count > 6 else loss


def test_a_loss_that_is_nan_stops_and_the_last_good_state_is_kept(tmp_path: Path) -> None:
    model = new_model()
    seen: list[Epoch] = []
    epochs = train(model, Breaks(), toy(), settings=QUICK, out=tmp_path)
    with pytest.raises(RoodError, match=r"broke down in epoch 3, the loss is nan: lower lr .*kept"):
        seen.extend(epochs)
    assert [record.epoch for record in seen] == [1, 2]
    assert not model.training
    state = json.loads((tmp_path / "state.json").read_text())
    assert [e["epoch"] for e in state["epochs"]] == [1, 2]
    tensors = load_file(tmp_path / state["file"])
    assert all(v.isfinite().all() for v in tensors.values())
    assert any(k.startswith("momentum.") for k in tensors)


@dataclass(frozen=True, kw_only=True)
class Draws(Objective):
    """Cross-entropy, keeping what its generator gives at each step."""

    drawn: list[float]

    def compute(self, model: Model, batch: Batch, generator: torch.Generator) -> Tensor:
        self.drawn.append(torch.rand((), generator=generator).item())
        return cross_entropy(model(batch.x).logits, batch.y)


def test_every_step_draws_other_numbers() -> None:
    objective = Draws(drawn=[])
    list(train(new_model(), objective, toy(), settings=QUICK))
    assert len(objective.drawn) == len(set(objective.drawn)) == 4 * 3


def test_the_steps_are_those_of_nesterov() -> None:
    """Written out: v = mu v + g, w = w - lr (g + mu v), with weight decay in g."""
    settings = Settings(epochs=1, batch_size=30, lr=0.1, weight_decay=0.01)
    model, by_hand = new_model(), new_model().train().requires_grad_()
    list(train(model, CrossEntropy(), toy(), settings=settings))
    source = Feed(toy(), None, settings, torch.device("cpu"))
    velocity = [torch.zeros_like(p) for p in by_hand.parameters()]
    for step in range(source.steps):
        loss = CrossEntropy().loss(by_hand, source.batch(1, step), drawn(0))
        weights = list(by_hand.parameters())
        with torch.no_grad():
            for p, v, g in zip(weights, velocity, torch.autograd.grad(loss, weights), strict=True):
                g = g + 0.01 * p
                v.mul_(0.9).add_(g)
                p.sub_(settings.lr_at(step / source.steps) * (g + 0.9 * v))
    for p, q in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(p, q.detach(), atol=1e-5, rtol=1e-4)


def test_weights_that_overflow_stop_before_they_are_kept(tmp_path: Path) -> None:
    mad = Settings(epochs=3, batch_size=90, lr=1e38, weight_decay=1e3)  # one step: a finite loss
    with pytest.raises(RoodError, match="broke down in epoch 1, a weight is NaN or infinite"):
        list(train(new_model(), CrossEntropy(), toy(), settings=mad, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def damage_json(folder: Path) -> None:
    (folder / "state.json").write_text("{")


def damage_tensors(folder: Path) -> None:
    file = folder / "epoch-0004.safetensors"
    file.write_bytes(file.read_bytes()[:-9])


def alter_tensors(folder: Path) -> None:
    file = folder / "epoch-0004.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def lose_tensors(folder: Path) -> None:
    (folder / "epoch-0004.safetensors").unlink()


def from_the_future(folder: Path) -> None:
    path = folder / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (damage_json, "is damaged"),
        (damage_tensors, "cut short"),
        (alter_tensors, "was altered"),
        (lose_tensors, "found none"),
        (from_the_future, "update rood"),
    ],
)
def test_a_damaged_state_is_refused(damage, match: str, tmp_path: Path) -> None:
    list(train(new_model(), CrossEntropy(), toy(), settings=QUICK, out=tmp_path))
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=match):
        next(train(new_model(), CrossEntropy(), toy(), settings=QUICK, out=tmp_path))


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the training state"):
        list(train(new_model(), CrossEntropy(), toy(), settings=QUICK, out=tmp_path / "file"))


def test_data_that_cannot_be_trained_on_is_refused_at_once() -> None:
    refused(InputError, "aloe needs outliers", train, new_model(), ALOE(), toy())
    refused(InputError, "expected labelled images", train, new_model(), CrossEntropy(), noise())
    two = wrap(backbones.create("small_cnn", classes=2, channels=1))
    with pytest.raises(InputError, match="expected labels 0 to 1 in 'toy', got 0 to 2"):
        train(two, CrossEntropy(), toy())
    wide = ImageSet(name="wide", images=torch.zeros(4, 1, 9, 9, dtype=torch.uint8))
    with pytest.raises(InputError, match="expected outliers of shape"):
        train(new_model(), ALOE(), toy(), outliers=wide)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_loop_runs_on_a_gpu(tmp_path: Path) -> None:
    model = new_model()
    objective = ALOE(eps=0.02, steps=2, step=0.02)
    epochs = train(
        model, objective, toy(), outliers=noise(), settings=QUICK, out=tmp_path, device="cuda"
    )
    assert all(math.isfinite(e.loss) for e in epochs)
    assert generator(0).device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_recorded_steps_learn_what_others_learn() -> None:
    losses = []
    for graph in (False, True):
        epochs = train(
            new_model(),
            ALOE(eps=0.02, steps=2, step=0.02),
            toy(),
            outliers=noise(),
            settings=replace(QUICK, graph=graph),
            device="cuda",
        )
        losses.append([e.loss for e in epochs])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
