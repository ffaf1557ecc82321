"""The settings of a training run."""

import math
from pathlib import Path

import pytest

from rood import config
from rood.errors import ConfigError, InputError
from rood.training.settings import Augment, Settings


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
