"""Certified rows of an audit: beside the attacked ones, below them, and checked by them (P11)."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tiny_nets import images
from torch import nn
from toy_plan import assert_same, carried_out, manifest

import rood
from rood.attacks import PGD
from rood.certify import bounds, radius
from rood.certify.bounding import Certifier
from rood.data.base import ImageSet, spaced
from rood.detectors import KNN, MSP, ODIN
from rood.errors import BoundError, CapabilityError, InputError
from rood.evaluation.certificates import RADII
from rood.evaluation.deadline import Deadline
from rood.evaluation.plan import Plan, as_method
from rood.evaluation.rows import Evidence, detector_rows
from rood.evaluation.run import run
from rood.evaluation.store import Results
from rood.metrics import auroc
from rood.models.wrap import wrap
from rood.threat import Linf

SIDES = ("outside", "inside", "both")
THREATS = (Linf(0.01), Linf(0.03))


def grey(n, *, seed=0):
    return images(n, seed=seed)[:, :1]


def network():
    g = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 10), nn.ReLU(), nn.Linear(10, 3)).double()
    for value in net.parameters():
        value.data = torch.randn(value.shape, generator=g, dtype=value.dtype) / 4
    return wrap(net, mean=(0.4,), std=(0.3,))


def plan(**changes):
    model, x = network(), grey(40)
    y = model(x).logits.argmax(dim=1)
    detectors = {"msp": MSP(model), "knn": KNN(model, k=3).fit([(x, y)])}
    usual = {
        "detectors": {"tiny": detectors},
        "calibrate": ImageSet("calibrate", grey(20, seed=2)),
        "inside": ImageSet("inside", x[:20], y[:20]),
        "outside": {"dark": ImageSet("dark", grey(18, seed=3) / 4)},
        "threats": THREATS,
        "attack": PGD(steps=3),
        "certify": "crown",
    }
    return Plan(**usual | changes)


def only(name):
    return {"tiny": {name: plan().detectors["tiny"][name]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return carried_out(plan(), tmp_path_factory.mktemp("certified"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return carried_out(plan(sides=()), tmp_path_factory.mktemp("alone"))


def value(folder, **fields):
    (row,) = Results(folder).find(dataset="dark", detector="msp", **fields)
    return row.value


def test_clean_attacked_and_certified_rows_are_in_order(folder):
    for side in SIDES:
        for eps in ("0.01", "0.03"):
            clean = value(folder, metric="auroc", scenario="clean")
            attacked = value(folder, metric="auroc", side=side, scenario=f"pgd linf:{eps}")
            proved = value(
                folder, metric="certified_auroc", side=side, scenario=f"crown linf:{eps}"
            )
            assert clean >= attacked >= proved > 0


def test_a_certified_row_ranks_bounds_and_has_an_interval(folder):
    (row,) = Results(folder).find(
        metric="certified_auroc", detector="knn", side="both", scenario="crown linf:0.03"
    )
    p = plan()
    knn = p.detectors["tiny"]["knn"]
    high = bounds(knn, p.inside.pixels().double(), Linf(0.03)).high
    low = bounds(knn, p.outside["dark"].pixels().double(), Linf(0.03)).low
    assert row.value == pytest.approx(auroc(inside=high.numpy(), outside=low.numpy()))
    assert row.low < row.value < row.high
    assert (row.n_in, row.n_out, row.verdict) == (20, 18, "-")


def test_errors_at_the_deployed_threshold_are_certified_too(folder):
    for metric in ("fpr95_in_fixed", "fpr95_out_fixed"):
        attacked = value(folder, metric=metric, side="both", scenario="pgd linf:0.03")
        proved = value(
            folder, metric=f"certified_{metric}", side="both", scenario="crown linf:0.03"
        )
        assert proved >= attacked


def test_the_certified_accuracy_falls_with_eps_from_the_clean_one(folder):
    rows = Results(folder).find(metric="certified_accuracy")
    assert [r.scenario for r in rows] == ["crown linf:0.01", "crown linf:0.03"]
    assert 1.0 >= rows[0].value >= rows[1].value
    assert rows[1].value < 1.0
    assert all(r.low <= r.value <= r.high and r.n_in == 20 for r in rows)


def test_nothing_is_attacked_where_no_side_is_named(folder, alone):
    rows = Results(alone).rows
    assert {r.scenario for r in rows} == {"clean", "crown linf:0.01", "crown linf:0.03"}
    proved = [r for r in Results(folder).rows if r.metric.startswith("certified_")]
    assert [r for r in rows if r.metric.startswith("certified_")] == proved


def test_a_run_that_stopped_after_any_task_ends_with_the_same_files(alone, tmp_path):
    steps = sum(1 for _ in run(plan(sides=()), tmp_path / "counted"))
    for stop in (3, steps // 2, steps - 3):
        out = tmp_path / str(stop)
        for step, _ in enumerate(run(plan(sides=()), out)):
            if step == stop:
                break
        assert not manifest(out)["finished"]
        assert_same(carried_out(plan(sides=()), out), alone)


def test_an_audit_that_goes_on_keeps_the_certificates_of_its_folder(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "again")
    assert_same(carried_out(plan(certify=None), tmp_path / "again"), folder)


def test_certificates_are_added_to_an_audit(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "again")
    for kind in ("bounds", "radii"):
        shutil.rmtree(tmp_path / "again" / kind)
    monkeypatch.setattr(PGD, "climb", None)  # nothing is attacked again
    assert_same(carried_out(plan(), tmp_path / "again"), folder)


def test_a_detector_without_bounds_is_named_and_the_others_are_certified(tmp_path):
    detectors = plan().detectors["tiny"]
    odin = ODIN(detectors["msp"].model)
    carried_out(plan(detectors={"tiny": detectors | {"odin": odin}}, sides=()), tmp_path)
    proved = Results(tmp_path).find(metric="certified_auroc", side="both")
    assert {r.detector for r in proved} == {"msp", "knn"}
    (note,) = manifest(tmp_path)["notes"]
    assert note.startswith("not certified: odin on tiny: expected a detector whose score can be")
    with pytest.raises(CapabilityError, match="not certified: odin on tiny"):
        carried_out(plan(detectors={"tiny": {"odin": odin}}, sides=()), tmp_path / "alone")


def test_a_time_limit_leaves_out_whole_budgets_and_says_so(tmp_path):
    seconds = iter(range(10**6))
    deadline = Deadline("60s", 0.0, lambda: next(seconds) / 2)
    carried_out(plan(sides=(), deadline=deadline, about={"time": {"asked": "60s"}}), tmp_path)
    (note,) = manifest(tmp_path)["notes"]
    assert note.startswith("60s is too short to certify")
    rows = Results(tmp_path).find(metric="certified_auroc", side="both")
    assert 0 < len(rows) < 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threats": []}, "expected linf or l2 budgets to certify, got none"),
        ({"certify": None, "sides": ()}, "expected sides among"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        plan(**changes)


@pytest.mark.parametrize(("given", "meant"), [(True, "crown"), (False, None), ("ibp", "ibp")])
def test_a_method_is_named_as_a_user_would(given, meant):
    assert as_method(given) == meant


def test_an_unknown_method_is_refused():
    said = "expected a method among ibp, crown-ibp, crown, alpha to certify by, got 'magic'"
    with pytest.raises(InputError, match=said):
        as_method("magic")


class Unsound(Certifier):
    """Bounds that are too narrow by half."""

    def __call__(self, x):
        low, high = found = super().__call__(x)
        middle = (low + high) / 2
        return found._replace(low=(low + middle) / 2, high=(high + middle) / 2)


def test_a_score_outside_its_certified_bounds_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("rood.evaluation.certificates.Certifier", Unsound)
    with pytest.raises(BoundError) as e:
        carried_out(plan(detectors=only("msp"), threats=[Linf(0.03)]), tmp_path)
    said = str(e.value)
    assert said.startswith("expected no score of 'msp' on 'tiny' and image ")
    above = " above " in said
    bound = float(said.partition(" above " if above else " below ")[2].partition(",")[0])
    found = float(said.partition("got ")[2].partition(" ")[0])
    assert found > bound if above else found < bound
    stored = [load_file(f) for f in (tmp_path / "bounds" / "tiny" / "msp").iterdir()]
    assert any(np.isclose(b[end], bound, rtol=1e-8).any() for b in stored for end in b)
    assert not Results(tmp_path).find(metric="certified_auroc")


def test_a_clean_score_outside_its_bounds_stops_the_run_too(tmp_path, monkeypatch):
    monkeypatch.setattr(Unsound, "__call__", lambda self, x: Certifier.__call__(self, x).moved(1e3))
    monkeypatch.setattr("rood.evaluation.certificates.Certifier", Unsound)
    with pytest.raises(BoundError, match=r"got .* from clean: the certificate is wrong"):
        carried_out(plan(sides=()), tmp_path)


def test_bounds_on_disk_are_whole_sets(folder):
    found = sorted(p.relative_to(folder).as_posix() for p in (folder / "bounds").rglob("*.safe*"))
    assert len(found) == 2 * 2 * 2 + 2  # detectors, sets, budgets; classes at each budget
    arrays = load_file(folder / next(f for f in found if "msp/dark" in f))
    assert arrays["low"].shape == (18,)
    assert (arrays["low"] < arrays["high"]).all()
    assert torch.float64 == torch.from_numpy(arrays["low"]).dtype
    assert json.loads((folder / "manifest.json").read_text())["certify"] == "crown"


@pytest.mark.parametrize(("margin", "verdict"), [(None, "warn"), (2.0, "warn"), (0.1, "pass")])
def test_a_certificate_close_to_the_attacked_auroc_clears_it(margin, verdict):
    threat, scores = Linf(0.1), {"inside": np.linspace(0, 1, 30), "dark": np.linspace(1, 2, 30)}
    clean = {name: {"scores": s} for name, s in scores.items()}
    ends = {n: {"low": s - (margin or 0), "high": s + (margin or 0)} for n, s in scores.items()}
    evidence = Evidence(
        clean=clean | {"calibrate": clean["inside"]},
        attacked={(name, threat): arrays for name, arrays in clean.items()},
        outside=["dark"],
        threats=[threat],
        sides=("both",),
        attack="pgd",
        bounds={} if margin is None else {(n, threat): arrays for n, arrays in ends.items()},
        method="crown",
    )
    rows = {r.metric: r for r in detector_rows(evidence, "tiny", "msp", 0)}
    assert rows["flag_too_good"].verdict == verdict
    assert ("certified_auroc" in rows) == (margin is not None)


def test_audit_certifies_in_python(tmp_path):
    p = plan()
    results = rood.audit(
        p.model("tiny"),
        {"msp": p.detectors["tiny"]["msp"]},
        inside=p.inside.images,
        outside=p.outside["dark"].images,
        calibrate=p.calibrate.images,
        threats=[0.01],
        sides=[],
        certify="ibp",
        out=tmp_path,
        anyway=True,
    )
    (row,) = results.find(metric="certified_auroc", side="both")
    assert row.scenario == "ibp linf:0.01"


def test_radii_of_a_few_images_are_searched_at_the_largest_budget(alone):
    found = {f.name.split("-")[0]: f for f in (alone / "radii" / "tiny" / "msp").iterdir()}
    assert found.keys() == {"inside", "dark"}
    radii, p = load_file(found["dark"])["radius"], plan()
    msp, x = p.detectors["tiny"]["msp"], p.outside["dark"].pixels().double()[spaced(18, RADII)]
    (threshold,) = Results(alone).find(metric="threshold", detector="msp")
    assert radii == pytest.approx(radius(msp, x, threshold.value, Linf(0.03)).numpy())
    assert 0 < radii.max() <= 0.03
