"""The examples in the docstrings of public functions run."""

import doctest
import importlib

import numpy as np
import pytest
import torch

import rood

MODULES = [
    "analysis.budget",
    "analysis.dimensions",
    "analysis.matching",
    "analysis.rectification",
    "analysis.trajectory",
    "api",
    "certify.bounding",
    "certify.sandwich",
    "data",
    "data.base",
    "detectors._together",
    "detectors.base",
    "goals",
    "guard.guard",
    "interop",
    "metrics.ranking",
    "models.wrap",
    "models.zoo",
    "threat",
    "tuning",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"rood.{name}")
    known = {"rood": rood, "torch": torch, "np": np}
    found = doctest.testmod(module, extraglobs=known, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
    assert found.attempted > 0
