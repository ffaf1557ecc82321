"""The tests of certificates bite: each planted fault is found by a search."""

import pytest
import unsound


@pytest.mark.parametrize(("plant", "search"), unsound.FAULTS, ids=lambda v: v.__name__)
def test_an_unsound_relaxation_is_caught(plant, search, monkeypatch):
    assert search() <= 0.0
    plant(monkeypatch)
    assert unsound.found(search) > 1e-9
