"""One small audit that several tests look at."""

import pytest
from toy_audit import audited, toy_case


@pytest.fixture(scope="module")
def case():
    return toy_case()


@pytest.fixture(scope="module")
def results(case, tmp_path_factory):
    few = {"detectors": {n: case.detectors[n] for n in ("msp", "knn")}}
    few["outside"] = {"grey": case.outside["grey"]}
    return audited(case, tmp_path_factory.mktemp("audit"), **few)
