"""Two results folders, one with plain and one with hostile names, and their pages."""

from pathlib import Path

import pytest
from page_text import Text
from report_folder import build

from rood.report import write_report


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def report(folder: Path) -> Path:
    return write_report(folder)


@pytest.fixture(scope="session")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(build(tmp_path_factory.mktemp("hostile"), hostile=True))


@pytest.fixture(scope="session")
def page(report: Path) -> Text:
    return Text(report)


@pytest.fixture(scope="session")
def hostile(hostile_report: Path) -> Text:
    return Text(hostile_report)
