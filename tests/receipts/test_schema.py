"""Damaged and hostile receipts end with a finding, never with an error of Python."""

import random
import shutil

import pytest
from campaign import mutations

from rood.receipts.entry import SEAL
from rood.receipts.verify import verify

DAMAGE = {
    "entry.json": mutations.resealed(SEAL),  # of a stranger: its own hash fits
    "rows.jsonl": mutations.spoil_lines,
    "hashes.safetensors": mutations.spoil_safetensors,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_a_finding(receipt, tmp_path, name):
    words = set()
    for seed in range(40 if name == "entry.json" else 10):
        folder = shutil.copytree(receipt, tmp_path / str(seed))
        file = folder / name
        file.write_bytes(DAMAGE[name](file.read_bytes(), random.Random(f"{name} {seed}")))
        *before, last = verify(folder)
        assert {f.status for f in before} <= {"pass"}
        assert "\n" not in last.sentence
        words.add(last.status)
    assert "fail" in words
