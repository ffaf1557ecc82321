"""The manifest: how to repeat an audit, and what it cost."""

import json
from datetime import UTC, datetime, timedelta

import torch
from toy_audit import N, audited

from rood.attacks import PGD
from rood.evaluation.manifest import full_precision
from rood.evaluation.probes import (
    BLIND,
    CONTROLS,
    FEW,
    NUDGES,
    QUERIES,
    SHARES,
    STEPS,
    STRIDES,
    WITHOUT_LIMIT,
)
from rood.threat import Linf


def test_evaluation_computes_in_full_float32_and_puts_things_back():
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [b.allow_tf32 for b in backends]
    with full_precision():
        assert [b.allow_tf32 for b in backends] == [False, False]
        assert torch.backends.cudnn.deterministic
    assert [b.allow_tf32 for b in backends] == before


def test_the_manifest_tells_how_to_repeat_it(case, results):
    manifest = json.loads((results.folder / "manifest.json").read_text())
    assert manifest["finished"] is True
    assert datetime.now(UTC) - datetime.fromisoformat(manifest["date"]) < timedelta(hours=1)
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


def test_the_cost_is_what_a_count_by_hand_gives(case, tmp_path, monkeypatch):
    monkeypatch.setattr("rood.evaluation.probes.QUICK", PGD(steps=10))
    attack = PGD(steps=3, restarts=2)
    one = {"detectors": {"msp": case.detectors["msp"]}, "threats": [Linf(0.02)]}
    audited(case, tmp_path, **one, attack=attack)
    cost = json.loads((tmp_path / "manifest.json").read_text())["cost"]
    # judged: by the goal, before, after, its gradient, in 8 bits, once more
    climb, compare, judged, graph = 2 * (3 + 1), 1, 6, 2
    slopes = 3 * (2 * len(NUDGES) + 1 + len(STRIDES)) + 2
    way_back = 2 + len(SHARES) * (1 + STEPS)
    control = CONTROLS * (QUERIES + 2 + slopes + way_back + 3)
    more, blind, far = 10, BLIND.queries + 1, WITHOUT_LIMIT.steps
    further = FEW * ((more + 1) + blind + (far + 1) + 3 * (1 + 2 + 1) + 1)
    sets = 3  # inside and two outside ones, N images each
    assert cost["forwards"] == sets * (N * (climb + compare + judged) + graph + control + further)
    assert cost["backwards"] == sets * (N * (2 * 3 + 1) + CONTROLS * 2 + FEW * (more + far))
