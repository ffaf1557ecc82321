"""JSON and TOML of strangers: whatever is in it, a value that rood can use or an error of rood."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rood import config
from rood._parsing import DEPTH, json_file, json_of, toml_file
from rood.errors import CheckpointError, ConfigError, ResultsError, RoodError
from rood.evaluation.rows import Row
from rood.evaluation.settings import AuditSettings
from rood.evaluation.store import Store, read_rows
from rood.models import checkpoint
from rood.training import state
from rood.training.recipe import read as read_recipe

numbers = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 2**63, 2**64])
words = st.text() | st.sampled_from(["\ud800", "\x00", "\u202e", "../x", "x" * 3000])
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
QUICK = settings(max_examples=60, deadline=None)
ROW = {
    **{"model": "net", "detector": "knn", "dataset": "far", "scenario": "clean", "side": "none"},
    **{"metric": "auroc", "value": 0.9, "low": 0.8, "high": None, "n_in": 10, "n_out": 20},
    **{"seed": 0, "verdict": "-"},
}
CARD = {
    **{"format": 2, "backbone": "small_cnn", "settings": {"classes": 3, "channels": 3}},
    **{"mean": [0.1], "std": [0.2], "shape": [3, 8, 8], "classes": ["a", "b", "c"], "sha256": "0"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that the examples of one test share."""
    return tmp_path_factory.mktemp("files")


def jsonable(value):
    """As JSON has it: numbers beyond 64 bits have no place in it."""
    try:
        return json_of(json.dumps(value)), True
    except ValueError:
        return None, False


@QUICK
@given(values)
def test_a_value_comes_back_and_can_be_written_as_utf8(value):
    found, whole = jsonable(value)
    if whole:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
        assert jsonable(found) == (found, True) or "NaN" in json.dumps(found)


@QUICK
@given(st.binary() | st.text().map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_bytes_are_a_value_or_a_value_error(raw):
    with suppress(ValueError):
        json_of(raw)


@pytest.mark.parametrize("n", [DEPTH + 1, 990, 100_000])
@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}")])
def test_deep_json_is_refused(n, start, end):
    assert json_of(start * DEPTH + "1" + end * DEPTH)
    with pytest.raises(ValueError, match="levels of nesting"):
        json_of(start * n + "1" + end * n)


@pytest.mark.parametrize("text", ["{}", "[{}]", '"a" = {}'])
@pytest.mark.parametrize("n", [DEPTH + 1, 3000])
def test_deep_toml_is_refused_by_every_reader(tmp_path, text, n):
    path = tmp_path / "a.toml"
    for line in (f"x = {'[' * n}{']' * n}", "x = " + "{a = " * n + "1" + "}" * n, "a." * n + "b=1"):
        path.write_text(line)
        with pytest.raises(ConfigError, match="levels of nesting"):
            config.read(path)


@pytest.mark.parametrize("number", [str(2**64), str(-(2**63) - 1), "9" * 5000])
def test_numbers_beyond_64_bits_are_refused(number):
    with pytest.raises(ValueError, match=r"at most 64 bits|Exceeds the limit"):
        json_of(number)
    assert json_of("18446744073709551615") == 2**64 - 1


def test_lone_surrogates_are_escaped():
    assert json_of('["\\ud800", "\\ud83d\\ude00"]') == ["\\ud800", "\U0001f600"]


@pytest.mark.parametrize("read", [json_file, toml_file])
def test_only_regular_files_of_ordinary_size_are_read(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(20 << 30)
    for name in ("pipe", "zero", "folder", "huge"):
        with pytest.raises(OSError, match=r"no regular file|more than the"):
            read(tmp_path / name)


@QUICK
@given(st.sampled_from([*ROW, "more"]), values)
def test_rows_are_read_or_refused(place, key, value):
    (place / "rows.jsonl").write_text(json.dumps(ROW | {key: value}) + "\n")
    with suppress(ResultsError):
        (row,) = read_rows(place)
        assert isinstance(row, Row)
        assert isinstance(hash(row), int)


@QUICK
@given(values)
def test_a_manifest_is_a_table_or_none(place, value):
    (place / "manifest.json").write_text(json.dumps(value))
    found = Store(place).manifest()
    assert found is None or isinstance(found, dict)


@QUICK
@given(st.sampled_from([*CARD, "more"]), values, st.booleans())
def test_a_card_is_read_or_refused(place, key, value, sealed):
    whole, encodable = jsonable(CARD | {key: value})
    if not encodable:
        return
    path = place / "net.json"
    path.write_bytes(checkpoint.sealed(whole, checkpoint.SEAL if sealed else "other"))
    try:
        card = checkpoint.read_card(place / "net.safetensors")
    except CheckpointError:
        return
    assert sealed or card["format"] == 1
    assert len(card["shape"]) == 3


@QUICK
@given(st.sampled_from(["format", "file", "sha256", "epochs", "run"]), values)
def test_a_training_state_is_read_or_refused(place, key, value):
    card = {"format": 2, "file": "epoch-0001.safetensors", "sha256": "0", "epochs": [], "run": {}}
    whole, encodable = jsonable(card | {key: value})
    if encodable:
        (place / "state.json").write_bytes(checkpoint.sealed(whole, state.SEAL))
        with pytest.raises(CheckpointError):  # there are no tensors
            state.load(place, {})


def toml(value):
    """A value as TOML, as far as TOML has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf").replace("null", '""')


@QUICK
@given(st.sampled_from([*AuditSettings.__dataclass_fields__, "more"]), values)
def test_settings_of_an_audit_are_read_or_refused(place, key, value):
    path = Path(place, "audit.toml")
    path.write_bytes(f"{key} = {toml(value)}\n".encode("utf-8", "surrogatepass"))
    with suppress(RoodError):
        assert isinstance(config.load(AuditSettings, path), AuditSettings)


@QUICK
@given(st.sampled_from(["data", "size", "mean", "objective", "settings", "architecture"]), values)
def test_recipes_are_read_or_refused(place, key, value):
    path = Path(place, "train.toml")
    path.write_bytes(f"{key} = {toml(value)}\n".encode("utf-8", "surrogatepass"))
    with suppress(RoodError):
        read_recipe({"data": "digits:inside"} | config.read(path), path.name)
