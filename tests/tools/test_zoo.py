"""docs/evidence/zoo.md: what was measured, beside what ALOE's paper has."""

import json
from pathlib import Path

import pytest

from tools import zoo as pages

AUROC = {"ce": 0.10, "oe": 0.25, "adv": 0.67, "aoe": 0.78, "aloe": 0.92, "aloe-8": 0.51}


def rows_of(auroc: dict[str, float], accuracy: float = 0.94) -> list[dict]:
    """Networks with these values under every attack, 5 points above when clean."""
    rows = []
    for role, value in auroc.items():
        of = {"network": f"cifar10-{role}", "sha256": "aa"}
        rows.append(of | {"measure": "accuracy", "attack": "clean", "eps": "0", "value": accuracy})
        for attack in ("clean", "algorithm1", "pgd40x3", "standard"):
            eps = "0" if attack == "clean" else "8/255" if role == "aloe-8" else "1/255"
            v = value + 0.05 * (attack == "clean")
            for s in ("svhn", "dtd", "scenes", "cifar-100"):
                shift = {"svhn": -0.01, "dtd": 0.01, "cifar-100": -0.3}.get(s, 0)
                row = {"measure": "auroc", "detector": "msp", "dataset": s, "n_in": 9}
                rows.append(of | row | {"attack": attack, "eps": eps, "value": v + shift})
    return [r | {"low": r["value"] - 0.01, "high": r["value"] + 0.01} for r in rows]


@pytest.fixture
def page(tmp_path, monkeypatch):
    objective = {"ce": "cross_entropy", "aloe-8": "aloe"}
    cards = {
        f"cifar10-{role}": {
            "sha256": "aabb",
            "backbone": "wide_resnet",
            "settings": {"depth": 40, "widen": 2},
            "shape": [3, 32, 32],
            "training": {
                "objective": {"name": objective.get(role, role)},
                "settings": {"epochs": 40},
                "seconds": 77,
                "hardware": "a GPU",
                "command": f"rood train --name cifar10-{role}",
                "data": {"spec": "cifar10:train", "images": 50000},
                "outliers": None,
            },
        }
        for role in AUROC
    }
    monkeypatch.setattr(pages.zoo, "names", lambda: sorted(cards))
    monkeypatch.setattr(pages.zoo, "card", cards.__getitem__)
    monkeypatch.setattr(pages.zoo, "path", lambda name: tmp_path / f"{name}.safetensors")
    monkeypatch.setattr(pages, "VERDICT", tmp_path / "verdict.jsonl")
    for name in cards:
        (tmp_path / f"{name}.safetensors").write_bytes(bytes(1_230_000))

    def made(rows: list[dict]) -> str:
        path = tmp_path / "zoo.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return pages.page(pages.Measured(path))

    return made


def test_the_page_says_what_was_measured_beside_what_the_paper_has(page):
    text = page(rows_of(AUROC))
    line = next(s for s in text.splitlines() if s.startswith("| `cifar10-aloe` | WRN-40-2"))
    assert line.startswith("| `cifar10-aloe` | WRN-40-2 | ALOE | 94.00 | 1/255 | – | 97.00 | 92.00")
    assert (
        "| ALOE (`cifar10-aloe`) | 93.89 / 94.00 | 84.02 / – | 98.34 / 97.00 | 91.26 / 92.00"
        in text
    )
    assert "Under `Alg. 1`: ours MSP < OE < ADV < AOE < ALOE, the same order." in text
    assert "| `cifar10-ce` | 1.23 | 40 | 77 | a GPU | 50,000 of cifar10 train | none |" in text
    assert "All weights together: 7.4 MB." in text


def test_the_page_says_which_networks_were_attacked_on_other_numbers_of_images(page):
    rows = [
        r | {"n_in": 1234} if (r["network"], r["attack"]) == ("cifar10-aloe", "pgd40x3") else r
        for r in rows_of(AUROC)
    ]
    counts = "9 clean and `Alg. 1`, 9 `PGD-40 x3` (`cifar10-aloe` 1,234), 9 `standard`."
    assert f"Images per set: {counts}" in page(rows)


def test_outliers_that_were_mined_are_said(page):
    objective = pages.zoo.card("cifar10-aloe-8")["training"]["objective"]
    objective |= {"eps": 8 / 255, "keep": 0.5, "weight": 1.0}
    line = "| `cifar10-aloe-8` | WRN-40-2 | ALOE at 8/255, hardest 50% of outliers, weight 1 |"
    assert line in page(rows_of(AUROC))
    assert "| `cifar10-aloe` | WRN-40-2 | ALOE | 94.00 |" in page(rows_of(AUROC))


def test_the_page_shows_other_scores_where_they_were_measured(page):
    rows = rows_of(AUROC)
    assert "## Other scores" not in page(rows)
    gen = [
        r | {"detector": "gen", "value": r["value"] - 0.1}
        for r in rows
        if (r["network"], r["attack"]) == ("cifar10-adv", "pgd40x3")
    ]
    line = f"| `cifar10-adv` | 1/255 | 67.00{' | –' * 3} | 57.00 | – | 67.00{' | –' * 5} |"
    assert line in page([*rows, *gen])


def judged(path: Path, **kept: float) -> Path:
    """Rows of a verdict in which mirrored energy is chosen and these networks keep so much."""
    rows = []
    for network, value in kept.items():
        eps = "8/255" if network == "aloe_8" else "1/255"
        of = {"network": f"cifar10-{network.replace('_', '-')}", "sha256": "aa", "eps": eps}
        for d, v in (("msp", 0.5), ("mirrored_energy", 0.6)):
            row = {"measure": "validation", "detector": d, "attack": "standard", "value": v}
            rows.append(of | row | {"dataset": "cifar-100"})
            for a in ("pgd40x3", "standard"):
                row = {"measure": "verdict", "detector": d, "attack": a}
                both = [of | row | {"dataset": s} for s in ("svhn", "dtd", "scenes")]
                rows += [r | {"value": value if d != "msp" else 0.1} for r in both]
    lines = [json.dumps(r | {"low": 0.0, "high": 1.0}) + "\n" for r in rows]
    path.write_text("".join(lines))
    return path


def test_the_page_shows_the_score_that_validation_chose_beside_msp(page, tmp_path):
    assert "## Hardened networks" not in page(rows_of(AUROC))
    judged(tmp_path / "verdict.jsonl", aloe=0.92, aloe_8=0.72)
    text = page(rows_of(AUROC))
    sets = "svhn {0}, dtd {0}, scenes {0}"
    ends = "[0.00, 100.00]"
    for name, eps, kept in (("cifar10-aloe", "1/255", 92), ("cifar10-aloe-8", "8/255", 72)):
        both = f"{kept}.00 {ends} | {kept}.00 {ends} | {sets.format(f'{kept}.00')} |"
        assert f"| `{name}` | {eps} | 94.00 | mirrored_energy | 60.00 | {both}" in text
        of_msp = f"10.00 {ends} | 10.00 {ends} | {sets.format('10.00')} |"
        assert f"| `{name}` | {eps} | 94.00 | msp | 50.00 | {of_msp}" in text


def test_the_page_says_where_the_order_is_another(page):
    text = page(rows_of(AUROC | {"aoe": 0.95}))
    assert "ADV < ALOE < AOE, theirs MSP < OE < ADV < AOE < ALOE." in text


def test_numbers_of_weights_that_were_replaced_do_not_count(page):
    stale = [r | {"sha256": "cc"} for r in rows_of(AUROC)]
    assert "Not measured yet." in page(stale)
    assert "92.00" not in page(stale)
    assert "Not measured yet." in page([])
