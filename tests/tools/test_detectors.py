"""docs/evidence/detectors.md: networks side by side, some not measured in full."""

import json

import pytest

from benchmarks.peers import openood
from tools import detectors as pages

FAR = {"svhn": 0.9, "texture": 0.8, "scenes": 0.9, "mnist": 1.0}


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "RESULTS", tmp_path)

    def write(name, seed, sets, *more, protocol=pages.PROTOCOL):
        rows = [
            {
                "kind": "setup", "epochs": 9, "best": 8, "seconds": 8, "fit": 7, "validation": 6,
                "outliers": 5, "outliers_of": "noise", "torch": "2", "device": "GPU", "seed": seed,
                "protocol": protocol,
            },
            {"kind": "accuracy", "value": 0.9},
            *({"kind": "clean", "detector": "dice", "dataset": n, "auroc": v} for n, v in sets),
            *more,
        ]  # fmt: skip
        lines = "".join(json.dumps(r) + "\n" for r in rows)
        (tmp_path / f"detectors-cifar10-{name}.jsonl").write_text(lines)

    return write


def test_means_are_over_the_networks_that_have_every_set(results):
    results("a", 0, [("cifar100", 0.76), ("tin", 0.80), *FAR.items()])
    results("b", 1, [("cifar100", 0.78), ("tin", 0.84)])
    page = pages.page()
    assert "of seeds 0, 1" in page
    assert (
        "| `dice` | 79.50 ± 1.50 | 2 | 77.00 | 82.00 | 78.34 ± 0.79 | +1.16 | yes | 90.00 |" in page
    )


def test_networks_of_another_training_stand_beside_and_do_not_count(results):
    results("a", 0, [("cifar100", 0.76), ("tin", 0.80), ("tin_bicubic", 0.82)])
    results("b", 1, [("cifar100", 0.96), ("tin", 0.98)], protocol="bfloat16, He's initial values")
    last = "float32 and TF32, torch's initial values"
    results("d", 2, [("cifar100", 0.56), ("tin", 0.58)], protocol=last)
    (pages.RESULTS / "detectors-cifar10-c.jsonl").write_text(
        json.dumps(
            {
                "kind": "attacked",
                "detector": "msp",
                "dataset": "cifar100",
                "clean": 0.9,
                "own": 0.2,
                "worst": 0.1,
                "high": 0.3,
                "gradient": "exact",
                "n": 9,
            }
        )
    )
    page = pages.page()
    assert "One ResNet-18" in page
    assert "| 78.34 ± 0.79 | -0.34 | yes |  | 79.00 | 57.00 |  | 97.00 |" in page
    assert "| `msp` | cifar100 | exact | 0.900 | 0.200 | 0.100 | 0.300 | 9 | 1 |" in page


def test_a_gap_beyond_the_bar_is_shown_with_what_is_known_of_it(results):
    cut = [
        {"kind": "percentile", "percentile": p, "dataset": n, "auroc": v}
        for p, v in ((90.0, 0.82), (95.0, 0.74))
        for n in ("cifar100", "tin")
    ]
    results("a", 3, [("cifar100", 0.86), ("tin", 0.86)], *cut)
    results("b", 3, [("cifar100", 0.86), ("tin", 0.86)])
    page = pages.page()
    assert "all of seed 3" in page
    assert (
        "| +7.66 | no |  |  |  |  |  | network by network +7.66, +7.66; OpenOOD's own nets" in page
    )
    assert (
        "| percentile | 90 | 95 |\n| --- | --- | --- |\n| trained as OpenOOD's | 82.00 | 74.00 |"
        in page
    )


def test_the_page_knows_the_networks_that_the_benchmark_trains():
    assert pages.PROTOCOL == openood.PROTOCOL
    assert openood.HE in pages.BESIDE
