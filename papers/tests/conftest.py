"""What the tests of the papers share."""

import pytest
from toy_reproduce import bare_context


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine with nothing but what is shipped, at size tiny."""
    return bare_context(monkeypatch, tmp_path)
