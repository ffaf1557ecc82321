"""What all tests share.

Shapes are checked at run time while tests run: pyproject.toml passes
`--jaxtyping-packages=rood,beartype.beartype` to pytest.
"""

import pytest
import torch

from rood.testing import World, toy_world

torch.set_num_threads(1)  # more threads than small tensors deserve: 10 times slower


@pytest.fixture(scope="session")
def _world() -> World:
    return toy_world()


@pytest.fixture
def world(_world: World) -> World:
    """The toy world, fresh for each test: a faulty detector may write into it."""
    return _world.copy()
