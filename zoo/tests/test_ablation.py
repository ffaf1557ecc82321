"""Each row of the ablation differs from the base by its change alone, and reads no test set."""

import argparse
import json
from dataclasses import asdict

import pytest
import torch

from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.training.recipe import get
from rood_zoo import ablation
from rood_zoo.heads import TESTS
from rood_zoo.rows import Rows


@pytest.mark.parametrize("name", ablation.CHANGES)
def test_a_row_differs_by_its_change_alone(name):
    base, change = get(ablation.BASE), ablation.CHANGES[name]
    first = ablation.changed(base, {}, 3)
    wanted = ablation.changed(base, change, 3)
    fields = {f for f in vars(first) if getattr(first, f) != getattr(wanted, f)}
    assert fields == set(change)
    for table in ("objective", "settings"):
        one, other = asdict(getattr(first, table)), asdict(getattr(wanted, table))
        assert {k for k in one if one[k] != other[k]} == set(change.get(table, {}))
    assert wanted.settings.epochs == 3
    assert not [s for s in TESTS if s in (wanted.outliers or "") + ablation.CHOOSING]


def test_rows_are_written_once(tmp_path, monkeypatch):
    images = lambda n, labels=True: ImageSet(
        f"images {n}",
        torch.randint(0, 256, (n, 3, 16, 16), generator=torch.Generator().manual_seed(n)).byte(),
        torch.arange(n) % 3 if labels else None,
        ("a", "b", "c") if labels else (),
    )
    given = ablation.Images.__new__(ablation.Images)
    given.base = get(ablation.BASE)
    given.parts = {"fit": images(24), "test": images(12)}
    given.near, given._outliers = images(10, False), {given.base.outliers: images(20, False)}
    monkeypatch.setattr(ablation, "WorstOf", lambda **_: PGD(steps=2))
    monkeypatch.setitem(
        ablation.SMALL, "architecture", {"scored": True, "width": 4, "depths": [1, 1]}
    )
    quick = {"batch_size": 8, "outlier_batch": 8, "compile": False}
    monkeypatch.setitem(ablation.CHANGES, "base", {"settings": quick})
    rows = Rows(tmp_path / "rows.jsonl", ablation.KEY)
    args = argparse.Namespace(epochs=1, images=5, device="cpu")
    ablation.measure("base", given, rows, args)
    found = [json.loads(line) for line in rows.path.read_text().splitlines()]
    assert [r["measure"] for r in found] == ["training", "clean", "both"]
    assert found[2]["value"] <= found[1]["value"]
    ablation.measure("base", given, rows, args)
    assert len(rows.path.read_text().splitlines()) == 3
