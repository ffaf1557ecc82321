"""What an audit leaves on disk beside its rows, and what it refuses to begin."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from toy_audit import THREATS, N, audited, facts, toy_case

import rood
from rood.attacks import PGD
from rood.detectors import MSP, Mahalanobis
from rood.errors import InputError, NotFittedError
from rood.evaluation.probes import CONTROLS, FEW, NUDGES, QUERIES, WITHOUT_LIMIT
from rood.evaluation.tasks import metered
from rood.threat import Linf


@pytest.fixture(scope="module")
def case():
    return toy_case()


@pytest.fixture(scope="module")
def results(case, tmp_path_factory):
    few = {"detectors": {n: case.detectors[n] for n in ("msp", "knn")}}
    few["outside"] = {"grey": case.outside["grey"]}
    return audited(case, tmp_path_factory.mktemp("audit"), **few)


def test_the_manifest_tells_how_to_repeat_it(case, results):
    manifest = json.loads((results.folder / "manifest.json").read_text())
    assert manifest["finished"] is True
    settings = manifest["settings"]
    assert settings["models"] == {"model": case.model.fingerprint()}
    assert settings["threats"] == ["l2:0.6", "linf:0.05", "linf:0.07"]
    assert settings["attack"]["class"] == "PGD"
    assert settings["attack"]["steps"] == 4
    assert settings["detectors"]["model"]["knn"]["k"] == 5
    assert manifest["data"]["grey"]["n"] == N
    assert manifest["data"]["calibrate"]["role"] == "inside"
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["hardware"]["device"] == "cpu"
    assert manifest["hardware"]["tf32"] is False
    assert manifest["detectors"]["knn"]["gradient"] == "almost_everywhere"
    assert min(manifest["cost"].values()) > 0


def test_the_cost_is_what_a_count_by_hand_gives(case, tmp_path):
    attack = PGD(steps=3, restarts=2)
    one = {"detectors": {"msp": case.detectors["msp"]}, "threats": [Linf(0.02)]}
    audited(case, tmp_path, **one, attack=attack)
    cost = json.loads((tmp_path / "manifest.json").read_text())["cost"]
    climb, compare, judged = 2 * (3 + 1), 1, 1 + 1 + 2
    control = CONTROLS * (QUERIES + 2 + 1 + 2 * len(NUDGES) + 3)
    more, far = 10, WITHOUT_LIMIT.steps
    further = FEW * ((more + 1) + (far + 1) + 2 * (1 + 2 + 1) + 1)
    sets = 3  # inside and two outside ones, N images each
    assert cost["forwards"] == sets * (N * (climb + compare + judged) + control + further)
    assert cost["backwards"] == sets * (N * (2 * 3 + 1) + FEW * (more + far))


def test_the_meter_counts_images_forwards_and_backwards_and_lets_go(case):
    x = case.inside[0][:5]
    with metered(case.model) as cost:
        case.model(x)
        odin = case.detectors["odin"].score(x)  # a forward and a backward pass, then a forward
        probe = x.clone().requires_grad_()
        case.model(probe).logits.sum().backward()
    assert len(odin) == 5
    assert (cost.forwards, cost.backwards) == (20, 10)
    assert cost.seconds > 0
    case.model(x)
    assert cost.forwards == 20


def test_saved_examples_lie_in_the_threat_model(case, results):
    files = sorted(results.folder.glob("examples/**/*.safetensors"))
    assert len(files) == 2 * 2 * 3  # detectors, sets, threats
    for path in files:
        a = {k: torch.from_numpy(v) for k, v in load_file(path).items()}
        assert len(a["original"]) == 6
        threat = next(t for t in THREATS if str(t) == facts(path)["condition"].removeprefix("pgd "))
        assert threat.contains(a["attacked"], a["original"]).all()
        if "knn" in str(path):
            with torch.no_grad():
                again = case.detectors["knn"].score(a["attacked"])
            torch.testing.assert_close(again, a["after"], rtol=1e-4, atol=1e-5)


def test_rows_are_read_without_torch(results):
    code = (
        "import sys, pathlib; from rood.evaluation.store import Results; "
        f"r = Results(pathlib.Path({str(results.folder)!r})); "
        "print(len(r.find(metric='auroc')), 'torch' in sys.modules)"
    )
    source = str(Path(rood.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": source},
        check=True,
    )
    assert done.stdout.split() == ["20", "False"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"detectors": {}}, "at least one detector"),
        ({"outside": {}}, "at least one out-of-distribution set"),
        ({"outside": {"inside": torch.zeros(5, 3, 8, 8)}}, "another name"),
        ({"outside": {"": torch.zeros(5, 3, 8, 8)}}, "with a name"),
        ({"outside": {"none": torch.zeros(0, 3, 8, 8)}}, "expected images in 'none', got none"),
        ({"outside": {"far": torch.full((5, 3, 8, 8), 1.5)}}, "pixels in [0, 1] in 'far'"),
        ({"calibrate": torch.zeros(19, 3, 8, 8)}, "at least 20 in-distribution images"),
        ({"sides": ("none",)}, "expected sides among"),
        ({"sides": ("both", "both")}, "expected sides among"),
        ({"sides": ()}, "expected sides among"),
        ({"seed": -1}, "seed >= 0"),
        ({"batch_size": 0}, "batch size >= 1"),
    ],
)
def test_what_cannot_be_audited_is_refused_before_anything_is_written(
    case, tmp_path, changes, words
):
    with pytest.raises(InputError) as refusal:
        audited(case, tmp_path / "out", **changes)
    assert words in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_detectors_must_be_fitted_and_on_the_model_given(case, world, tmp_path):
    with pytest.raises(InputError, match="'msp' to be built on the model given"):
        audited(case, tmp_path / "out", detectors={"msp": MSP(world.model)})
    with pytest.raises(NotFittedError, match="call fit"):
        audited(case, tmp_path / "out", detectors={"m": Mahalanobis(case.model)})
    assert not (tmp_path / "out").exists()
