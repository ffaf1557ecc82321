"""The examples in the docstrings of public functions run."""

import doctest
import importlib

import numpy as np
import pytest
import torch

import rood

MODULES = [
    *("goals", "interop", "threat", "tuning", "metrics.ranking"),
    *(f"analysis.{name}" for name in ("budget", "dimensions", "matching", "rectification")),
    *(
        "analysis.trajectory",
        "api",
        "data",
        "data.base",
        "guard.guard",
        "models.wrap",
        "models.zoo",
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"rood.{name}")
    known = {"rood": rood, "torch": torch, "np": np}
    found = doctest.testmod(module, extraglobs=known, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
    assert found.attempted > 0
