"""The usual files of the tests of commands, and a working folder with links to them."""

import pytest
from bad_input import linked
from small_audit import small_files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return small_files(tmp_path_factory.mktemp("small"))


@pytest.fixture
def here(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return linked(files, tmp_path)
