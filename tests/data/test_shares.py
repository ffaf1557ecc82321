"""How the in-distribution images are divided where nothing says it."""

import numpy as np

from rood import data
from rood.data.base import SHARES
from rood.evaluation.prepare import OTHERS_SHARES, divided
from rood.evaluation.settings import AuditSettings


def counts(tmp_path, *models):
    pixels = np.random.default_rng(0).integers(0, 256, (250, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(250) % 3)
    settings = AuditSettings(models=models, inside=f"npz:{tmp_path / 'x.npz'}")
    parts = divided(settings, (3, 8, 8))
    return {name: len(part) for name, part in parts.items()}


def test_a_network_from_elsewhere_gets_a_fifth_for_its_threshold(tmp_path):
    found = counts(tmp_path, "timm:resnet50")
    assert set(found) == set(OTHERS_SHARES)
    assert abs(found["calibrate"] - 50) < 25


def test_a_network_of_ours_keeps_the_part_it_was_trained_on(tmp_path):
    found = counts(tmp_path, "digits-ce")
    assert found == {
        name: len(part)
        for name, part in data.split(data.load(f"npz:{tmp_path / 'x.npz'}"), "", **SHARES).items()
    }
