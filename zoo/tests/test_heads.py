"""The score of a network with a scalar head is chosen on images that are not reported."""

import json

import pytest
import torch

from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.models import zoo
from rood.models.scored import scored
from rood.training.recipe import get
from rood_zoo import heads
from rood_zoo.rows import Rows
from rood_zoo.table import Network

SIDE = (1, 28, 28)


def numbered(n: int) -> ImageSet:
    """Each image says its place in its first two pixels."""
    images, places = torch.zeros(n, *SIDE, dtype=torch.uint8), torch.arange(n)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = places // 256, places % 256
    return ImageSet("numbered", images, places % 6, tuple("abcdef"))


def places(x: torch.Tensor) -> list[int]:
    high, low = (255 * x[:, 0, 0, :2]).round().long().T
    return (256 * high + low).tolist()


def test_images_that_choose_are_not_reported():
    images = numbered(1001)
    chose, reported = places(heads.choosing(images, 250)), places(heads.reported(images, 250))
    assert len(set(chose)) == len(set(reported)) == 250
    assert max(chose) < 500
    assert min(reported) >= 500
    assert {p % 2 for p in reported} == {0}
    assert places(heads.reported(images, 40)) == reported[:40]


@pytest.mark.parametrize("name", heads.PROTOCOLS)
def test_test_sets_neither_choose_nor_train(name):
    protocol, recipe = heads.PROTOCOLS[name], get(name)
    assert protocol.choosing not in heads.TESTS
    assert {*heads.TESTS} <= {*protocol.reported}
    for pack in ("svhn", "dtd", "scenes"):
        assert pack not in (recipe.outliers or "")
        assert any(pack in spec for spec in recipe.unseen)
    if name.startswith("cifar10-"):
        assert recipe.data == "share:0-0.98@cifar10:train"


@pytest.fixture
def report(monkeypatch, tmp_path):
    for name in ("WorstOf", "PGD"):
        monkeypatch.setattr(heads, name, lambda **_: PGD(steps=3))
    noise = lambda seed: ImageSet(
        f"noise {seed}",
        torch.randint(0, 256, (24, *SIDE), generator=torch.Generator().manual_seed(seed)).byte(),
        torch.arange(24) % 6,
        tuple("abcdef"),
    )
    sets = {s: noise(i) for i, s in enumerate((*heads.TESTS, "cifar-100"))}
    model = scored(zoo.load("digits-ce"))
    net = Network("cifar10-joint", "0" * 12, model, noise(9), sets, (0.01, 0.05))
    return heads.Report(net, Rows(tmp_path / "rows.jsonl", heads.KEY))


def test_the_chosen_score_alone_is_reported(report):
    chosen = report.choice(3)
    report.report(chosen, 4, 2)
    report.accuracy()
    found = [json.loads(line) for line in report.rows.path.read_text().splitlines()]
    choice = {
        r["detector"]: r["value"] for r in found if r["measure"] == "choice" if r["side"] == "both"
    }
    assert set(choice) == set(heads.SCORES)
    assert choice[chosen] == max(choice.values())
    rows = [r for r in found if r["measure"] == "report"]
    assert {r["detector"] for r in rows} == {chosen}
    assert {r["side"] for r in rows} == {"clean", "in", "out", "both"}
    assert {(r["attack"], r["eps"]) for r in rows} == {
        *(("standard", "0.01"), ("standard", "0.05"), ("standard on the same", "0.05")),
        *(("pgd100", "64/255"), ("pgd1000x5", "0.05")),
    }
    by = {(r["dataset"], r["attack"], r["eps"], r["side"]): r["value"] for r in rows}
    for (s, attack, eps, side), value in by.items():
        assert value <= by[s, attack, eps, "clean"] + 1e-9
        assert value >= by[s, attack, eps, "both"] - 1e-9, side
    before = len(found)
    report.report(chosen, 4, 2)
    assert len(report.rows.path.read_text().splitlines()) == before  # nothing is measured again
