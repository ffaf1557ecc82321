"""The pytest plugin audits inside somebody's tests, and costs nothing where it is not used."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import rood.api  # noqa: F401  (here, so that pytester keeps it)

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parent.parent
PLUGIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
WRONG = """
import pytest
from rood.attacks import PGD
from rood.detectors import MSP
from rood.testing import toy_world
from rood.testing.world import blobs

def test_a_limit(rood_audit):
    world = toy_world()
    results = rood_audit(world.model, [MSP(world.model)], inside=blobs(80, seed=1)[0],
                         outside=world.outside[:20], threats=[0.3], attack=PGD(steps=2))
    assert (results.folder / "report.html").exists()
    assert results.worst() > 0.99

def test_a_mistake(rood_audit, tmp_path):
    with pytest.raises(ValueError, match="expected a Model"):
        rood_audit(5, ["msp"], inside="x", outside="y", threats=[], out=tmp_path)
"""


@pytest.fixture
def inner(pytester):
    """Tests of a project that has installed rood, or of which we say so here."""
    pytester.makeini("[pytest]\nfilterwarnings = ignore::rood.errors.RoodWarning")
    pytester.makeconftest("from rood.pytest_plugin import rood_audit")
    return pytester


def test_pytest_finds_the_plugin():
    (module,) = PLUGIN["pytest11"].values()
    assert callable(import_module(module).rood_audit)


def test_pytest_starts_without_torch():
    program = "import sys, rood.pytest_plugin; print({'torch', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.slow
def test_the_example_of_the_docs_passes(inner):
    page = (ROOT / "docs" / "how-to" / "ci-gate.md").read_text()
    (code,) = re.findall(r"```python\n(# test_robustness.py\n.*?)```", page, re.DOTALL)
    inner.makepyfile(test_robustness=code)
    inner.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_a_failure_names_the_detector_and_the_page(inner):
    inner.makepyfile(WRONG)
    ran = inner.runpytest_inprocess("-p", "no:cacheprovider")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.re_match_lines(
        [r"E .*model msp on outside, pgd linf:0\.3: AUROC 0\.\d+", r"report: .*report\.html"]
    )
