"""Settings files are read strictly, with their types."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from rood import config
from rood.errors import ConfigError, first_line


@dataclass(frozen=True)
class Inner:
    eps: float = 0.5


@dataclass(frozen=True)
class Settings:
    name: str
    steps: int = 3
    eps: float = 0.1
    kind: Literal["a", "b"] = "a"
    out: Path | None = None
    levels: tuple[float, ...] = ()
    inner: Inner = Inner()
    many: dict[str, int] | None = None


def load(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return config.load(Settings, path)


def test_settings_are_read_with_their_types(tmp_path):
    got = load(tmp_path, 'name="x"\neps=1\nout="d"\nlevels=[1, 0.5]\nkind="b"\n[inner]\neps=2')
    assert got == Settings("x", 3, 1.0, "b", Path("d"), (1.0, 0.5), Inner(2.0))
    assert type(got.eps) is float


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name="x"\nstps=3', "no setting is called 'stps': did you mean 'steps'"),
        ('name="x"\nzzzzzz=3', "no setting is called 'zzzzzz': known: name, steps"),
        ('name="x"\nsteps="3"', "steps: expected int, got '3'"),
        ('name="x"\nsteps=true', "steps: expected int, got True"),
        ('name="x"\nsteps=3.0', "steps: expected int, got 3.0"),
        ('name="x"\nkind="c"', "kind: expected one of 'a', 'b', got 'c'"),
        ('name="x"\nlevels=["high"]', "levels: expected float, got 'high'"),
        ('name="x"\n[inner]\nepps=2', "inner: no setting is called 'epps': did you mean 'eps'"),
        ("steps=3", "missing 1 required positional argument: 'name'"),
        ("name=", "expected TOML in .*s.toml"),
    ],
)
def test_a_settings_file_is_read_strictly(text, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        load(tmp_path, text)


def test_a_settings_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r"expected a settings file at .*nowhere.toml, found none"
    ):
        config.load(Settings, tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("e", "says"), [(ValueError("\none\ntwo"), "one"), (ValueError(" "), "ValueError")]
)
def test_an_error_is_told_in_one_line(e, says):
    assert first_line(e) == says
