"""Tasks give the same rows wherever, whenever and in whatever order they run."""

import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_plan import BATCH, assert_same, carried_out, manifest, toy_plan

import rood
from rood._files import write_whole
from rood.data.base import ImageSet
from rood.detectors import KNN, MSP
from rood.errors import InputError, UnknownNameError
from rood.evaluation.engines import Engine, Local, pick
from rood.evaluation.run import Run
from rood.evaluation.store import Store
from rood.evaluation.tasks import Task
from rood.threat import Linf

CLEAN = Task(model="model", dataset="grey", detectors=("knn",))
ATTACK = replace(CLEAN, threat=Linf(0.05))


class Listed(Engine):
    """Lists the tasks it does; may reverse their order, and may stop after some."""

    def __init__(self, *, backwards=False, most=None):
        self.backwards, self.most, self.did = backwards, most, []

    @contextmanager
    def opened(self, plan):
        def results(tasks, meter):
            for task in reversed(tasks) if self.backwards else tasks:
                if len(self.did) == self.most:
                    raise KeyboardInterrupt
                self.did.append(task)
                yield task, task.do(plan)

        yield results


@pytest.fixture(scope="module")
def plan(case):
    return toy_plan(case)


@pytest.fixture(scope="module")
def usual(plan, tmp_path_factory):
    return carried_out(plan, tmp_path_factory.mktemp("usual"))


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.delenv("ROOD_CACHE", raising=False)


def test_units_that_end_in_another_order_change_no_byte(plan, usual, tmp_path):
    engine = Listed(backwards=True)
    carried_out(plan, tmp_path, engine)
    assert_same(tmp_path, usual)
    # three sets clean for both detectors at once, the network's classes, one set attacked for each
    assert len(engine.did) == 2 * (3 + 1 + 2)
    assert len(set(engine.did)) == len(engine.did)


def test_scores_lie_in_the_order_of_the_images(case, plan, usual):
    with torch.no_grad():
        wanted = case.detectors["knn"].score(plan.outside["grey"].pixels()).numpy()
    known, attacked = (Store(usual).read(w.key(plan))[0] for w in (CLEAN, ATTACK))
    np.testing.assert_allclose(known["scores"], wanted, rtol=1e-4)
    np.testing.assert_allclose(attacked["before"], wanted, rtol=1e-4)


@pytest.mark.parametrize("most", [1, 7, 9])
def test_a_run_that_stops_within_a_set_goes_on_there(plan, usual, tmp_path, most):
    first, second = Listed(most=most, backwards=True), Listed()
    with pytest.raises(KeyboardInterrupt):
        carried_out(plan, tmp_path, first)
    carried_out(plan, tmp_path, second)
    assert_same(tmp_path, usual)
    # all but the classes, for which there is no file once they are whole
    assert not {u for u in first.did if u.detectors} & set(second.did)


def test_units_of_another_size_are_not_mixed_in(plan, usual, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        carried_out(replace(plan, batch_size=7), tmp_path, Listed(most=1))
    assert list((tmp_path / "units").iterdir())
    carried_out(plan, tmp_path)
    assert_same(tmp_path, usual)


def test_a_run_goes_on_with_as_many_images_at_once_as_it_began_with(plan, usual, tmp_path):
    assert manifest(usual)["batch_size"] == BATCH
    with pytest.raises(KeyboardInterrupt):
        carried_out(plan, tmp_path, Listed(most=3))
    carried_out(replace(plan, batch_size=None), tmp_path)
    assert_same(tmp_path, usual)


def test_a_cache_serves_other_runs(case, plan, usual, tmp_path, monkeypatch):
    monkeypatch.setenv("ROOD_CACHE", str(tmp_path / "cache"))
    first, again, more, other = (Listed() for _ in range(4))
    msp = replace(plan, detectors={"model": {"msp": case.detectors["msp"]}})
    carried_out(msp, tmp_path / "first", first)
    assert len(first.did) == 2 * (3 + 1 + 1)
    carried_out(msp, tmp_path / "again", again)
    assert again.did == []
    assert_same(tmp_path / "again", tmp_path / "first")
    assert manifest(tmp_path / "again")["cost"] == manifest(tmp_path / "first")["cost"]
    carried_out(plan, tmp_path / "more", more)
    assert {u.detectors for u in more.did} == {("knn",)}
    assert_same(tmp_path / "more", usual)
    carried_out(replace(msp, threats=[Linf(0.02)]), tmp_path / "other", other)
    assert {str(u.threat) for u in other.did} == {"linf:0.02"}  # clean scores are known


def test_enough_is_beyond_every_clean_image_of_the_other_side_and_the_threshold(case, tmp_path):
    grey = ImageSet("grey", case.outside["grey"][:20])
    one = Run(toy_plan(case, outside={"a": grey, "b": grey}), Store(tmp_path), Local())

    def enough(**scores):
        for name, values in scores.items():
            key = Task(model="model", dataset=name, detectors=("msp",)).key(one.plan)
            one.store.write(key, {"scores": np.array(values, np.float64)}, {})
        return [one._enough("model", "msp", role) for role in ("inside", "outside")]

    assert enough(calibrate=range(20), inside=[3, 9], a=[5, 30], b=[4, 40]) == [40, -3]
    assert enough(a=[4, 40], b=[5, 30]) == [40, -3]
    assert enough(inside=[25, 30], a=[1, 2], b=[1, 2]) == [18, -18]  # the threshold


def test_a_file_is_replaced_and_never_rewritten(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with path.open("rb") as reader:
        write_whole(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_address_of_a_unit_follows_from_all_that_it_depends_on(case, plan):
    x = case.outside["grey"][:20].clone()
    x[0, 0, 0, 0] = 1 - x[0, 0, 0, 0]
    knn = [KNN(case.model, k=5).fit(case.train[:2]), KNN(case.model, k=6).fit(case.train)]
    others = [replace(plan, detectors={"model": {"knn": d}}) for d in knn]
    others.append(replace(plan, outside={"grey": ImageSet("grey", x)}))
    for work in (CLEAN, ATTACK):
        assert len({work.address(p) for p in (plan, *others)}) == 4
        assert work.address(toy_plan(case)) == work.address(plan)
    seeded = replace(plan, seed=1)
    assert CLEAN.address(seeded) == CLEAN.address(plan)
    works = [ATTACK, replace(ATTACK, threat=Linf(0.02)), replace(ATTACK, enough=3.0), CLEAN]
    assert len({ATTACK.address(seeded), *(w.address(plan) for w in works)}) == 5


def test_the_address_follows_from_the_weights(case, world):
    addresses = []
    for _ in range(2):
        addresses.append(
            CLEAN.address(toy_plan(case, detectors={"model": {"knn": MSP(world.model)}}))
        )
        with torch.no_grad():
            next(world.model.parameters()).view(-1)[0] += 1e-3
    assert addresses[0] != addresses[1]


def test_the_address_follows_from_the_code_of_the_detector(case, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    addresses = []
    for name, formula in (("one", "logits.sum(1)"), ("two", "logits.mean(1)")):
        code = "from rood.detectors import OutputDetector\nclass Own(OutputDetector):\n"
        code += f"    def score_outputs(self, out):\n        return out.{formula}\n"
        (tmp_path / f"own_{name}.py").write_text(code)
        own = __import__(f"own_{name}").Own(case.model)
        addresses.append(CLEAN.address(toy_plan(case, detectors={"model": {"knn": own}})))
    assert addresses[0] != addresses[1]


def test_the_address_follows_from_the_code_of_an_attack_of_ones_own(case, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    addresses = []
    for name, formula in (("ahead", "x"), ("aside", "x.flip(3)")):
        code = "from dataclasses import dataclass\nfrom rood.attacks import Attack\n"
        code += "@dataclass(frozen=True, kw_only=True)\nclass Mine(Attack):\n"
        code += f"    def climb(self, goal, x, threat, noise):\n        return {formula}\n"
        (tmp_path / f"moves_{name}.py").write_text(code)
        addresses.append(ATTACK.address(toy_plan(case, attack=__import__(f"moves_{name}").Mine())))
    assert addresses[0] != addresses[1]


def test_the_cache_may_be_the_folder_of_results_itself(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("ROOD_CACHE", str(tmp_path))
    at_once = lambda file, how, lock=fcntl.flock: lock(file, how | fcntl.LOCK_NB)
    monkeypatch.setattr("rood._files.fcntl.flock", at_once)  # raises where it would wait
    carried_out(plan, tmp_path)
    assert manifest(tmp_path)["finished"]


def test_engines_are_picked_by_name():
    assert pick("ray", 3, "auto", "cuda:1").device == "cuda"
    assert pick("ray", None, None, "auto").device is None
    with pytest.raises(UnknownNameError, match="'rai'"):
        pick("rai", None, None, "auto")
    with pytest.raises(InputError, match="--engine ray beside --workers"):
        pick("local", 2, None, "auto")
    with pytest.raises(InputError, match="at least 1 worker"):
        pick("ray", 0, None, "auto")


def test_ray_is_not_imported_before_it_is_asked_for():
    code = (
        "import sys, rood.evaluation.settings; "
        "from rood.evaluation.engines import pick; pick('ray', 2, None, 'auto'); "
        "print('ray' in sys.modules)"
    )
    where = os.environ | {"PYTHONPATH": str(Path(rood.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=where, check=True)
    assert done.stdout.split() == ["False"]
