"""The repository keeps its order: names, layers, sizes, generated files, a README that runs."""

import ast
import configparser
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "rood"
PACKAGES = [LIBRARY, ROOT / "papers" / "rood_papers", ROOT / "zoo" / "rood_zoo"]
TREES = {p: ast.parse(p.read_text()) for top in PACKAGES for p in sorted(top.rglob("*.py"))}
# the only class names that stand twice: a detector and the objective that trains its network
DETECTORS_WITH_OBJECTIVES = {"CCU", "DeepEnsemble", "JEM"}
# folders whose modules may share a name: one is about the other
RELATED = [
    {"cli", "guard"},  # a command and what it calls
    {"cli", "receipts"},
    {"detectors", "generative"},  # a detector and its network
    {"detectors", "objectives"},
    {"detectors", "sources"},
]
# folders of tests, and the code that they mirror
MIRRORS = {
    "tests": LIBRARY,
    "tests/benchmarks": ROOT / "benchmarks",
    "tests/campaign": ROOT / "tests" / "campaign",
    "tests/tools": ROOT / "tools",
    "papers/tests": PACKAGES[1],
    "zoo/tests": PACKAGES[2],
}
# tests of what several modules do together, which mirror no single one
TOGETHER = {
    "tests/attacks": "masked",
    "tests/certify": "auto_lirpa mutants",
    "tests/cli": "bad_folders bad_input newcomers",
    "tests/data": "derived",
    "tests/docs": "code_blocks demo links site",
    "tests/detectors": "logit_scores",
    "tests/evaluation": "engines_ray",
    "tests/models": "real_libraries trust",
    "tests/report": "browser",
    "tests": "api_mistakes architecture boxes_example doctests imagenet_example init layout "
    "network_examples own_model_example packaging",
    "tests/testing": "contracts mutants",
    "tests/training": "distributed objectives_inner objectives_robust steps",
    "papers/tests": "public_api trained_systems",
    "zoo/tests": "recipes zoo",
}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_public_class_name_stands_twice():
    places = defaultdict(list)
    for path, tree in TREES.items():
        if LIBRARY in path.parents and not path.name.startswith("_"):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path.parent.name)
    twice = {name: folders for name, folders in places.items() if len(folders) > 1}
    assert twice == {name: ["detectors", "objectives"] for name in DETECTORS_WITH_OBJECTIVES}


def test_no_module_name_stands_twice():
    places = defaultdict(set)
    for path in TREES:
        if LIBRARY in path.parents and path.name != "__init__.py":
            places[path.stem].add(path.parent.name)
    twice = {name: folders for name, folders in places.items() if len(folders) > 1}
    assert {name: folders for name, folders in twice.items() if folders not in RELATED} == {
        "base": {p.parent.name for p in TREES if p.name == "base.py" and LIBRARY in p.parents},
        "settings": {"evaluation", "training"},  # of an audit, of a training
    }


def test_no_package_imports_a_private_name_of_another():
    """Those at the root of rood, such as rood._files, are shared by its packages."""
    found = []
    for path, tree in TREES.items():
        top = next(package for package in PACKAGES if package in path.parents)
        module = ".".join(path.relative_to(top.parent).with_suffix("").parts)
        for name in imported(tree):
            private = re.match(r"(rood[\w.]*?)\._(?!_)", name)
            if private and not module.startswith(f"{private[1]}."):
                found.append(f"{module} imports {name}")
    assert not found


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_contract_of_imports_leaves_nothing_out():
    """Layers are whole packages, every one is named, and no import is let through."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    flow = contract["importlinter:contract:flow"]
    assert (flow["type"], flow["containers"], flow["exhaustive"]) == ("layers", "rood", "True")
    assert not re.search(r"\.", flow["layers"])
    for section in contract.values():
        assert not {"ignore_imports", "exhaustive_ignores"} & set(section)
    assert contract["importlinter"]["root_packages"].split() == [p.name for p in PACKAGES]


def test_functions_are_short():
    """40 lines; neither its docstring nor a command's signature, which is its help, counts."""
    long = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :] or node.body
                if (lines := node.end_lineno - body[0].lineno + 1) > 40:
                    long.append(f"{shown(path)}:{node.lineno} {node.name} {lines}")
    assert not long


def test_no_module_of_ours_unpickles():
    for path in TREES:
        for line in path.read_text().splitlines():
            assert "pickle.load" not in line
            assert "torch.load(" not in line or "weights_only=True" in line


def test_nothing_is_seeded_globally():
    for path in TREES:
        if "testing" in path.parts:  # where a check draws from the global generator to see it moved
            continue
        assert not re.search(r"(torch|np\.random|random)\.(manual_)?seed\(", path.read_text()), path


@pytest.mark.parametrize("folder", ["tests", "papers/tests", "zoo/tests"])
def test_tests_mirror_the_code(folder):
    lost = []
    for path in sorted((ROOT / folder).rglob("test_*.py")):
        place, name = shown(path.parent), path.stem.removeprefix("test_")
        code = MIRRORS.get(place) or MIRRORS[folder] / path.parent.relative_to(ROOT / folder)
        modules = {p.stem.removeprefix("_") for p in code.rglob("*.py")}
        packages = {p.parent.name for p in code.rglob("__init__.py")}
        if name not in modules | packages and name not in TOGETHER.get(place, "").split():
            lost.append(shown(path))
    assert not lost


def test_no_test_imports_another():
    for folder in ("tests", "papers/tests", "zoo/tests"):
        for path in (ROOT / folder).rglob("*.py"):
            names = set(imported(ast.parse(path.read_text())))
            assert not [n for n in names if n.startswith(("test_", "tests."))], path


def test_generated_files_are_up_to_date():
    command = [sys.executable, "-m", "tools.generate", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + "\nrun `make generate`"


@pytest.mark.slow
def test_the_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    code = re.search(r"<!-- example -->\n```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code.group(1), "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.fullmatch(r"(\w+: 0\.\d\d \[\d\.\d\d, \d\.\d\d\], \w+\n){2}", said)
    assert (tmp_path / "audit-example" / "report.html").exists()
