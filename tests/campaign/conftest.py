"""The small world of the campaign; what its tests try needs no sandbox."""

import pytest

from campaign import world as worlds


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Files, an audit and a guard."""
    root = tmp_path_factory.mktemp("campaign") / "world"
    return worlds.build(root, ("audit", "fit"), twice=False)
