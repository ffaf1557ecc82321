"""docs/detectors.md: networks side by side, also those on which not everything was measured."""

import json

import pytest

from docs import detectors as pages

FAR = {"svhn": 0.9, "texture": 0.8, "scenes": 0.9, "mnist": 1.0}


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "RESULTS", tmp_path)

    def write(name, seed, sets, *more):
        rows = [
            {
                "kind": "setup", "epochs": 9, "seconds": 8, "fit": 7, "validation": 6,
                "outliers": 5, "outliers_of": "noise", "torch": "2", "device": "GPU", "seed": seed,
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
    assert "| +7.66 | no |  | the same formula" in page
    assert "| percentile | 90 | 95 |\n|---|---|---|\n| near | 82.00 | 74.00 |" in page
