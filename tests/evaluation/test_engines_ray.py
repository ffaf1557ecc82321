"""Workers of a Ray cluster give the rows of the local engine, even if they are killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from frail import Frail
from small_audit import small_command, small_files
from toy_plan import assert_same, carried_out, manifest, toy_plan

import rood
from rood.errors import CapabilityError, InputError
from rood.evaluation.engines.ray import Ray

ray = pytest.importorskip("ray", reason="needs ray: pip install 'rood[ray]'")


@pytest.fixture(scope="module")
def _cluster():
    """Two workers that all tests of this file share; starting them takes seconds."""
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=2, **quiet)
    yield
    ray.shutdown()


@pytest.fixture
def frail(case, tmp_path):
    """A plan with a detector that fails in workers, as often as it is told."""
    faults = tmp_path / "faults"
    faults.mkdir()

    def plan(how, times):
        for i in range(times):
            (faults / str(i)).touch()
        detectors = {"frail": Frail(case.model, folder=str(faults), how=how)}
        detectors |= {"knn": case.detectors["knn"]}
        return toy_plan(case, detectors={"model": detectors}, sides=("both",))

    plan.left = lambda: len(list(faults.iterdir()))
    return plan


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("how", ["killed", "broken"])
def test_a_worker_that_is_lost_costs_its_unit_only(frail, how, tmp_path):
    far = carried_out(frail(how, 2), tmp_path / "far", Ray())
    assert frail.left() == 0  # it has failed, twice
    near = carried_out(frail(how, 0), tmp_path / "near")
    carried_out(frail(how, 0), far)  # goes on, without a warning that something is measured anew
    assert_same(far, near)
    manifests = [manifest(f) for f in (far, near)]
    for facts in manifests:
        facts["cost"].pop("seconds")
        facts.pop("hardware")  # the most memory in use so far
        facts.pop("date")
    assert manifests[0] == manifests[1]


@pytest.mark.usefixtures("_cluster")
def test_what_is_wrong_with_the_input_is_said_as_the_local_engine_does(frail, tmp_path):
    with pytest.raises(InputError, match="expected something else"):
        carried_out(frail("refused", 99), tmp_path / "far", Ray())
    # nobody tries again; on a busy machine other tasks meet it too before the run is stopped
    assert frail.left() >= 99 - 20


@pytest.mark.usefixtures("_cluster")
def test_a_unit_that_kills_every_worker_is_given_up(frail, monkeypatch, tmp_path):
    monkeypatch.setattr("rood.evaluation.engines.ray.TRIES", 0)
    with pytest.raises(CapabilityError, match="expected a worker to finish a task, lost 1"):
        carried_out(frail("killed", 3), tmp_path / "far", Ray())


def test_without_ray_one_sentence_says_what_to_install(frail, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CapabilityError, match=r"needs ray: pip install 'rood\[ray\]'"):
        carried_out(frail("killed", 0), tmp_path / "far", Ray())


def test_the_command_starts_a_quiet_cluster(tmp_path):
    files = small_files(tmp_path)
    where = os.environ | {"PYTHONPATH": str(Path(rood.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    code = "from rood.cli import app; app(prog_name='rood')"
    few = ["--detectors", "msp", "--eps", "0.05", "--batch-size", "50", "--json"]
    said = {}
    for engine in (["--engine", "ray", "--workers", "2"], ["--engine", "local"]):
        command = small_command(files, tmp_path / engine[1], *few, *engine)
        done = subprocess.run(
            [sys.executable, "-c", code, *command],
            capture_output=True,
            text=True,
            env=where,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said[engine[1]] = (done.stdout, done.stderr)
    assert said["ray"] == said["local"]
    assert_same(tmp_path / "ray", tmp_path / "local")
