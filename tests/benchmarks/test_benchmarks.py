"""Every benchmark runs, at sizes that mean nothing; what it writes, the page shows."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import rood_zoo
from benchmarks import __main__ as bench
from benchmarks import (
    attack,
    auditing,
    fitting,
    gpu,
    growth,
    guard,
    honest,
    measure,
    scoring,
    standard,
    start,
    time_limits,
)
from benchmarks.measure import Claim
from rood.attacks import PGD
from rood.evaluation.rows import Row

TINY = {
    "start": lambda: start.claims(runs=1),
    "attack": lambda: attack.claims(images=2, steps=2, depth=10, runs=1),
    "scoring": lambda: scoring.claims(images=100, bank=128, depth=10, runs=1),
    "guard": lambda: guard.claims(images=64, bank=128, depth=10, runs=1, names=("knn",)),
    "fitting": lambda: fitting.claims(sizes=(60, 80), names=("knn",), beside=False),
    "auditing": lambda: auditing.claims(sizes=(40, 60)),
    "knn": lambda: gpu.knn("cpu", bank=200, d=8, queries=4),
}


@pytest.mark.parametrize("name", TINY)
def test_every_script_measures_something(name):
    made = TINY[name]()
    assert made
    for claim in made:
        assert math.isfinite(claim.value)
        assert claim.bar > 0


def test_the_loop_of_the_gpu_script_runs_without_one():
    model = gpu.vit("cpu", size=16, patch=8, width=16, depth=1, heads=2)
    rate = gpu.loop("ViT", model, gpu.pixels(2, 16, "cpu"), steps=2, runs=1)
    assert rate.at_least
    assert rate.points[0]["rood"] / rate.points[0]["bare"] == pytest.approx(rate.value, rel=0.05)
    assert gpu.data(model, 4, 16, 2, runs=1).value > 0


def test_the_growth_of_an_audit_is_measured_from_its_manifest():
    once = growth.measured(growth.Size(images=20, steps=1), depth=10)
    assert once["backwards"] >= 2 * 20
    assert once["forwards"] > once["backwards"]
    assert once["cpu_seconds"] > 0


def test_growth_is_the_cost_of_one_at_the_largest_over_that_at_the_smallest(monkeypatch):
    cost = lambda size, depth: size._asdict() | {"cpu_seconds": 1.0 + 0.5 * size.detectors**2}
    monkeypatch.setattr(growth, "measured", cost)
    sizes = [growth.Size(detectors=n) for n in (1, 2, 4)]
    (claim,) = growth.claims({"detectors": sizes})
    assert claim.value == pytest.approx((9 / 4) / 1.5)
    assert not claim.holds


@pytest.mark.skipif(not bench.PEERS.exists(), reason="needs `make peers`")
def test_pytorch_ood_is_measured_beside():
    code = (
        "from benchmarks import beside_pytorch_ood as b; import json;"
        "c = b.claims(images=60, batch=60, depth=10, runs=1);"
        "print(json.dumps([c[0].value, c[0].points]))"
    )
    value, points = json.loads(_output(str(bench.PEERS), code))
    ours, theirs = points
    assert (ours["library"], theirs["library"]) == ("rood", "pytorch-ood")
    assert value == pytest.approx(ours["fit and score"], abs=1e-3)
    assert theirs["fit and score"] > ours["fit and score"]


def _output(python, code):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [python, "-c", code]
    done = subprocess.run(
        command, cwd=bench.ROOT, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_that_was_held_for_a_moment_counts_and_mapped_images_do_not(tmp_path):
    with auditing.Fullest() as held:
        block = torch.ones(2**24, dtype=torch.float32)
        time.sleep(0.2)
        del block
    assert 60 < held.most - held.before < 90
    images = auditing.mapped(tmp_path, "inside", 60_000)
    with auditing.Fullest() as read:
        total = sum(int(part.sum()) for part in images.images.split(1000))
    assert total > 0
    assert read.most - read.before < 15  # of 29 MB


# what is printed and written


def claim(**more):
    given = {"name": "a / b", "value": 1.2, "bar": 1.1, "runs": 3, "spread": 0.1, "detail": "here"}
    return Claim(**given | more)


def test_a_bar_is_kept_from_below_or_from_above():
    assert not claim().holds
    assert claim(value=1.1).holds
    assert claim(at_least=True).holds
    assert "MISSED" in claim().line()
    assert "at least 1.1" in claim(at_least=True).line()


def test_the_report_writes_rows_and_says_whether_all_bars_hold(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    assert measure.report("x", [claim(points=({"n": 1},)), claim(value=1.0)]) == 1
    assert measure.report("y", [claim(value=1.0)]) == 0
    rows = [json.loads(r) for r in (tmp_path / "performance-x.jsonl").read_text().splitlines()]
    assert rows[0]["run"]["torch"] == torch.__version__
    assert [r["holds"] for r in rows[1:]] == [False, True]
    assert '{"n": 1}' in capsys.readouterr().out


def test_ratios_are_medians_of_runs_in_turns():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    found = measure.times(calls, runs=2)
    assert order == ["a", "b", "a", "b", "b", "a"]
    assert [len(v) for v in found.values()] == [2, 2]
    assert measure.of([2.0, 6.0, 3.0], [1.0, 2.0, 2.0]) == (2.0, 1.5)


def test_a_script_whose_library_is_missing_is_named_and_passed_over(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench, "PEERS", tmp_path / "python")
    assert bench.measure("beside_pytorch_ood") == 0
    assert "make peers" in capsys.readouterr().out


def test_time_limits_measured_apart_are_judged_together(tmp_path, monkeypatch, capsys):
    point = {"seconds": 1.0, "attack": "PGD 20 steps", "images": 50, "detectors": 5}
    shares = {("a", "1m"): 0.7, ("b", "1m"): 0.9, ("a", "10m"): 1.3}
    audited = lambda n, asked: {"network": n, "limit": asked, "share": shares[n, asked], **point}
    monkeypatch.setattr(time_limits, "audited", audited)
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    files = [str(tmp_path / f"{n}-{asked}.jsonl") for n, asked in shares]
    for file, (n, asked) in zip(files, shares, strict=True):
        assert time_limits.main([n, "--time", asked, "--out", file]) == 0
    assert not (tmp_path / "performance-time-limits.jsonl").exists()
    assert time_limits.main(["--join", *files]) == 1  # 1.3 is over the bar
    run, one, ten = map(
        json.loads, (tmp_path / "performance-time-limits.jsonl").read_text().splitlines()
    )
    assert run["run"]["torch"] == torch.__version__
    assert (one["value"], one["runs"], one["holds"]) == (0.9, 2, True)
    assert (ten["value"], ten["runs"], ten["holds"]) == (1.3, 1, False)


def test_honest_rows_measured_apart_are_joined_and_not_measured_again(tmp_path, monkeypatch):
    asked = []

    def measured(name, detectors, attack, limit):
        asked.extend((name, d) for d in detectors)
        for d in detectors:
            yield Row(
                model=name,
                detector=d,
                dataset="dtd",
                scenario="attacked",
                side="both",
                metric="auroc",
                value=0.5,
                low=None,
                high=None,
                n_in=limit,
                n_out=limit,
                seed=0,
                verdict="pass",
            )

    monkeypatch.setattr(honest, "measured", measured)
    parts = [str(tmp_path / f"{d}.jsonl") for d in ("msp", "knn")]
    honest.main(["svhn-ce", "--detector", "msp", "--out", parts[0]])
    honest.main(["svhn-ce", "--detector", "knn", "--out", parts[1]])
    whole = str(tmp_path / "all.jsonl")
    honest.main(["--join", *parts, *parts, "--out", whole])
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 2
    asked.clear()
    honest.main(["svhn-ce", "--out", whole])
    assert asked == [("svhn-ce", d) for d in honest.DETECTORS if d not in ("msp", "knn")]


def test_the_suite_is_compared_on_images_drawn_once(tmp_path, monkeypatch):
    draws = torch.Generator().manual_seed(0)
    whole = lambda n: torch.randint(0, 256, (n, 3, 32, 32), generator=draws, dtype=torch.uint8)
    sizes = {"attacked": 4, "exemplars": 4, "bank": 60}
    images = {f"gtsrb.{part}": whole(n) for part, n in sizes.items()}
    save_file(images | {f"{s}.attacked": whole(4) for s in ("svhn", "dtd")}, tmp_path / "images")
    monkeypatch.setattr(standard, "WorstOf", lambda: PGD(steps=2, random_start=False))
    weights = Path(rood_zoo.__file__).parent / "weights"
    files = ["--images", f"{tmp_path}/images", "--zoo", f"{weights}", "--out", f"{tmp_path}/rows"]
    standard.main(["rows", "gtsrb-aloe:knn", "gtsrb-aloe:mirrored_energy", *files, "--n", "3"])
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [(r["detector"], r["dataset"]) for r in rows] == [
        (d, s) for d in ("knn", "mirrored_energy") for s in ("svhn", "dtd")
    ]
    assert [r["backwards_inside"] for r in rows] == [2, 2, 4, 4]
    for r in rows:
        assert r["both"] <= min(r["inside"], r["outside"]) <= r["clean"]
