"""Every way to spoil a file changes it, alike for the same seed, and never fails itself."""

import io
import json
import random

import numpy as np
import pytest
from safetensors.numpy import save

from campaign import mutations
from rood.models import checkpoint

ARCHIVE = io.BytesIO()
np.savez_compressed(ARCHIVE, images=np.zeros((2, 3, 8, 8), np.uint8), labels=np.arange(2))
CARD = json.dumps({"a": [1, {"b": "c"}], "d": None}).encode()
FILES = {
    "spoil_bytes": CARD,
    "spoil_text": b"a/b.png 1\nc d.png 2\n",
    "spoil_json": CARD,
    "spoil_toml": b"a = 1\n[b]\nc = [1, 2]\n",
    "spoil_lines": CARD + b"\n" + CARD + b"\n",
    "spoil_safetensors": save({"x": np.zeros(3, np.float32)}),
    "spoil_zip": ARCHIVE.getvalue(),
}


@pytest.mark.parametrize("name", FILES)
def test_a_mutation_changes_a_file_and_is_repeatable(name):
    spoil = getattr(mutations, name)
    found = [spoil(FILES[name], random.Random(seed)) for seed in range(60)]
    again = [spoil(FILES[name], random.Random(seed)) for seed in range(60)]
    assert found == again
    assert len(set(found)) > 20


def test_a_resealed_card_has_a_checksum_that_fits(tmp_path):
    sealed = checkpoint.sealed({"mean": [0.1], "std": [0.2]}, "seal")
    changed = [mutations.resealed("seal")(sealed, random.Random(s)) for s in range(40)]
    fitting = 0
    for raw in changed:
        try:
            card = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        fitting += isinstance(card, dict) and card.get("seal") == checkpoint.digest(card, "seal")
    assert fitting > 20
