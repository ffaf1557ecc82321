"""What all tests share. Shapes in annotations are checked while the tests run."""

import math
import signal

import pytest
import torch
from jaxtyping import install_import_hook

# all that handles tensors; int for float is fine (the numeric tower)
CHECKED = (
    *("analysis", "attacks", "certify", "data", "detectors", "evaluation", "goals", "guard"),
    *("interop", "models", "numerics", "seeds", "shapes", "threat", "training", "tuning"),
)
TYPECHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
install_import_hook([f"rood.{name}" for name in CHECKED], TYPECHECKER)

import rood.progress  # noqa: E402
from rood.testing import World, toy_world  # noqa: E402

# a job in a shell's background ignores Ctrl-C, and so would every process that a test starts
signal.signal(signal.SIGINT, signal.default_int_handler)
rood.progress.FIRST = math.inf  # no lines: on a busy machine any test may take long enough
torch.set_num_threads(1)  # more threads than small tensors deserve: 10 times slower


@pytest.fixture(scope="session")
def _world() -> World:
    return toy_world()


@pytest.fixture
def world(_world: World) -> World:
    """The toy world, fresh for each test: a faulty detector may write into it."""
    return _world.copy()


@pytest.fixture
def double(world: World) -> World:
    """The toy world in float64."""
    return world.double()
