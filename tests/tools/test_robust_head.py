"""The page of the robust heads says what its rows say, of the weights that are shipped."""

import json

import pytest

from tools import robust_head


def row(dataset="svhn", side="both", value=0.5, **other):
    known = {"network": "cifar10-joint-8", "measure": "report", "detector": "mirrored_head"}
    known |= {"sha256": "", "attack": "standard", "eps": "8/255", "n_in": 9, "n_out": 9}
    return {
        **known,
        "dataset": dataset,
        "side": side,
        "value": value,
        "low": 0.1,
        "high": 0.9,
    } | other


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Rows in a file of their own, which the page is then made of."""
    path = tmp_path / "rows.jsonl"
    monkeypatch.setattr(robust_head, "ROWS", path)
    found = [
        row(s, side, value + i / 10)
        for i, s in enumerate(robust_head.TESTS)
        for side, value in zip(robust_head.SIDES, (0.7, 0.5, 0.4, 0.2), strict=True)
    ]
    found.append(row(measure="accuracy", value=0.875))
    write = lambda some: path.write_text("".join(json.dumps(r) + "\n" for r in some))
    write(found)
    return found, write


def test_means_are_over_the_test_sets(rows):
    line = "| `cifar10-joint-8` | `mirrored_head` | 87.5 | 8/255 | 80.00 | 60.00 | 50.00 |"
    assert f"{line} **30.00 [10.00, 90.00]** |" in robust_head.page()


def test_rows_of_other_weights_are_left_out(rows):
    found, write = rows
    write([*found, *(r | {"sha256": "0" * 12, "value": 0.99} for r in found)])
    assert "99.00" not in robust_head.page()


def test_a_missing_set_gives_no_mean(rows):
    found, write = rows
    write([r for r in found if r["dataset"] != "dtd" or r["measure"] == "accuracy"])
    assert "**–**" in robust_head.page()


def test_rows_of_the_ablation_are_ranked_by_what_is_kept(tmp_path):
    path = tmp_path / "ablation.jsonl"
    assert robust_head.ablation(path) == ""
    of = {"epochs": 20, "n_in": 500}
    lines = [
        {"change": change, "measure": measure, "value": value, "low": 0.1, "high": 0.9, **of}
        | ({"seconds": 80, "accuracy": 0.75} if measure == "training" else {})
        for change, both in (("base", 0.5), ("better", 0.6), ("cut short", None))
        for measure, value in (("training", 2.0), ("clean", 0.8), ("both", both))
        if value is not None
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in lines))
    better, base = robust_head.ablation(path).splitlines()[-2:]
    assert better == "| better | 2.00 | 75.0 | 80.00 | 60.00 [10.00, 90.00] | 80 |"
    assert base.startswith("| base | 2.00")
