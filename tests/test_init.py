"""The front door: `import rood` is light, and completion lists what there is."""

import subprocess
import sys

import pytest
import torch

import rood
from rood.errors import InputError, NotFittedError


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_asking_for_one_class_imports_one_file():
    run(
        "import sys; from rood.detectors import KNN; "
        "assert 'rood.detectors.vim' not in sys.modules and KNN.__name__ == 'KNN'"
    )


def test_importing_rood_does_not_import_torch():
    run(
        "import sys, rood, rood.registry, rood.config, rood.errors; assert rood.__version__; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )


def test_rood_has_no_name_that_is_not_there():
    with pytest.raises(AttributeError, match="'rood' has no attribute 'wrop'"):
        rood.wrop  # noqa: B018


PACKAGES = ["detectors", "attacks", "training.objectives"]


def test_every_listed_name_is_there():
    assert {"audit", "wrap", "Guard", "detectors", "attacks", "metrics", "zoo"} <= set(dir(rood))
    for name in dir(rood):
        assert getattr(rood, name) is not None


@pytest.mark.parametrize("name", PACKAGES)
def test_a_registry_lists_its_classes_and_functions(name):
    run(
        "import sys, rood\n"
        f"package = rood.{name}\n"
        "before = set(sys.modules)\n"
        "listed = dir(package)\n"
        "assert set(sys.modules) == before, 'to list is not to import'\n"
        "r = package.registry\n"
        "assert set(listed) == {*package.__all__, *(r.cls(f).__name__ for f in r.files)}\n"
        "assert all(getattr(package, n) is not None for n in listed)"
    )


@pytest.mark.parametrize(
    "name", ["data", "goals", "interop", "metrics", "testing", "threat", "tuning"]
)
def test_completion_lists_what_a_module_offers_and_nothing_it_imports(name):
    module = getattr(rood, name)
    listed = dir(module)
    assert sorted(listed) == sorted(module.__all__)
    for item in listed:
        home = getattr(getattr(module, item), "__module__", module.__name__)
        assert home.startswith(("rood.", "collections", "builtins", "jaxtyping", "numpy")), item
    # what is defined there is either listed or for rood alone
    own = {n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
    assert {n for n in own if n[0] != "_"} <= set(listed)


def test_modules_of_a_package_are_its_attributes():
    assert rood.analysis.trajectory.__name__ == "rood.analysis.trajectory"
    assert {"budget", "matching", "rectification", "trajectory"} <= set(dir(rood.analysis))
    with pytest.raises(AttributeError, match=r"'rood.analysis' has no attribute 'budgets'"):
        rood.analysis.budgets  # noqa: B018


def test_a_detector_is_called_like_a_function(world):
    knn = rood.detectors.KNN(world.model, k=5)
    with pytest.raises(NotFittedError, match="call fit"):
        knn(world.inside)
    knn.fit(world.train)
    assert torch.equal(knn(world.inside), knn.score(world.inside))
    with pytest.raises(InputError, match=r"pixels in \[0, 1\]"):
        rood.detectors.MSP(world.model)(world.inside - 1)


def test_a_detector_says_its_options_and_whether_it_is_fitted(world):
    knn = rood.detectors.KNN(world.model, k=5)
    assert repr(knn) == "KNN(k=5, not fitted)"
    assert repr(knn.fit(world.train)) == "KNN(k=5, fitted)"
    assert repr(rood.detectors.MSP(world.model)) == "MSP(temperature=1.0)"
    assert repr(rood.detectors.PRO(knn)) == "PRO(eps=0.001, steps=3, base=KNN(k=5, fitted))"
    assert repr(rood.attacks.PGD(steps=3)).startswith("PGD(")
