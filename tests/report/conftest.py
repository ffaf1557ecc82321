"""Results folders of all kinds, and their pages."""

from pathlib import Path

import pytest
from page_text import Text
from report_folder import build, unfinished, untrustworthy

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
def pages(
    report: Path, hostile_report: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A page of every kind that a person may open."""
    new = lambda name: tmp_path_factory.mktemp(name)
    folders = {
        "one network": build(new("one"), networks=("digits-ce",)),
        "20 detectors": build(new("twenty"), detectors=20),
        "unfinished": unfinished(new("unfinished")),
        "untrustworthy": untrustworthy(new("untrustworthy")),
        "of rood 0.1": build(new("old"), labelled=False),
    }
    written = {name: write_report(folder) for name, folder in folders.items()}
    return {"two networks": report, "hostile names": hostile_report, **written}


@pytest.fixture(scope="session")
def page(report: Path) -> Text:
    return Text(report)


@pytest.fixture(scope="session")
def hostile(hostile_report: Path) -> Text:
    return Text(hostile_report)
