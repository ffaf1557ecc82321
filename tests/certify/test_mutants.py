"""The tests of certificates bite: each planted fault is found by a search."""

import pytest
import unsound

from rood.errors import CapabilityError


@pytest.mark.parametrize(("plant", "search"), unsound.FAULTS, ids=lambda v: v.__name__)
def test_an_unsound_relaxation_is_caught(plant, search, monkeypatch):
    assert search() <= 0.0
    plant(monkeypatch)
    assert found(search) > 1e-9


def found(search):
    """What a search finds; `trace`, which compares operations with the network, finds too."""
    try:
        return search()
    except CapabilityError as e:
        return float("whose operations give its outputs" in str(e))
