"""Import paths of rood 0.1 still work and name the new path."""

import importlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

from rood import metrics
from rood._moved import MOVED, NAMES, new_path, scattered, without_removed


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_gives_the_new_module_and_warns(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}: import that"):
        module = importlib.import_module(old)
    new = importlib.import_module(MOVED[old])
    if scattered(old):
        shared = [n for n in vars(new) if f"{old}.{n}" not in NAMES and not n.startswith("__")]
        assert all(getattr(module, n) is getattr(new, n) for n in shared)
    else:
        assert module is new
        assert module.__name__ == module.__spec__.name == MOVED[old]


@pytest.mark.parametrize("old", NAMES)
def test_a_name_that_left_its_module_is_found_and_warns(old):
    module, _, attribute = old.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{old} is now rood"):
        found = getattr(importlib.import_module(module), attribute)
    home, _, new = NAMES[old].partition(":")
    assert found is getattr(importlib.import_module(home), new or attribute)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_of_results_and_recipes_are_imported_as_before():
    from rood.evaluation.results import Results, Row, Side, read_rows, rows_from_csv
    from rood.training.recipes import parts, run, start

    assert None not in (Results, Row, Side, read_rows, rows_from_csv, parts, run, start)


def test_a_submodule_of_a_moved_package_is_not_loaded_twice():
    with pytest.warns(DeprecationWarning, match="rood.guarding"):
        from rood.guarding.calibration import calibrate
    assert calibrate.__module__ == "rood.guard.calibration"


def test_an_old_module_is_an_attribute_of_rood_too(monkeypatch):
    import rood

    monkeypatch.delitem(sys.modules, "rood.softmax", raising=False)
    monkeypatch.delattr(rood, "softmax", raising=False)
    with pytest.warns(DeprecationWarning, match="rood.softmax is now rood.numerics.softmax"):
        assert rood.softmax.__name__ == "rood.numerics.softmax"


@pytest.mark.parametrize("old", ["rood.reproduce", "rood.reproduce.liang", "rood.paper_goals"])
def test_the_papers_say_where_they_went(old):
    with pytest.raises(ModuleNotFoundError, match="install rood-papers"):
        importlib.import_module(old)


def test_an_unknown_path_is_missing_as_usual():
    assert find_spec("rood.nowhere") is None
    assert new_path("rood.matchings") is None


def test_the_warning_points_at_the_line_that_imports(tmp_path):
    script = tmp_path / "script.py"
    lines = ["import rood", "from rood.offline import offline", "from rood import softmax"]
    script.write_text("\n".join(lines))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert "script.py:2: DeprecationWarning" in done.stderr
    assert "script.py:3: DeprecationWarning" in done.stderr


def test_a_function_that_moved_is_still_found():
    with pytest.warns(DeprecationWarning, match=r"rood.metrics.mape is now rood.analysis.matching"):
        assert metrics.mape([[1.0, 3.0]], [[1.0, 2.0]]) == 0.25
    with pytest.raises(AttributeError, match=r"'rood.metrics' has no attribute 'aurroc'"):
        metrics.aurroc  # noqa: B018


def test_settings_of_0_1_lose_the_options_that_are_gone_where_they_were_unused():
    gram = {"class": "Gram", "orders": 5, "scaled": True, "openood_slip": True}
    tree = {"detectors": [gram], "attack": {"class": "PGD", "steps": 3, "truncate": False}}
    kept = {"class": "Gram", "orders": 5, "openood_slip": True}
    want = {"detectors": [kept], "attack": {"class": "PGD", "steps": 3}}
    assert without_removed(tree) == want
