"""The score that decides is chosen on other images than those it is judged on."""

import json

import pytest
import torch

from rood.attacks import APGD, PGD
from rood.data.base import ImageSet, spaced
from rood.models import zoo
from rood_zoo import table as zoo_table
from rood_zoo import verdict as zoo_verdict
from rood_zoo.rows import Rows
from rood_zoo.table import KEY

SIDE = (1, 28, 28)


def numbered(n: int, name: str = "x") -> ImageSet:
    """Each image says its place in its first two pixels."""
    images = torch.zeros(n, *SIDE, dtype=torch.uint8)
    places = torch.arange(n)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = places // 256, places % 256
    return ImageSet(name, images)


def places(x: torch.Tensor) -> set[int]:
    high, low = (255 * x[:, 0, 0, :2]).round().long().T
    return set((256 * high + low).tolist())


def test_no_image_is_used_twice():
    images = numbered(5000)
    first, second = map(places, zoo_verdict.unseen(images, 2, 200))
    shown = set(spaced(5000, zoo_verdict.SHOWN))
    assert len(first) == len(second) == 200
    assert not first & second
    assert not (first | second) & shown
    assert set(spaced(5000, 250)) < shown  # what fewer images of that table are
    assert places(zoo_verdict.unseen(images, 1, 200)[0]) == first
    assert len(zoo_verdict.unseen(numbered(1100), 1, 200)[0]) == 100  # what is left


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(zoo_verdict, "SHOWN", 4)
    cheap = {"pgd40x3": (PGD(steps=5), "pgd"), "standard": (APGD(steps=5), "standard")}
    monkeypatch.setattr(zoo_table, "suites", lambda: cheap)
    source = torch.Generator().manual_seed(0)
    noise = lambda n: ImageSet(n, torch.randint(0, 256, (12, *SIDE), generator=source).byte())
    outside = {s: noise(s) for s in ("cifar-100", *zoo_verdict.TESTS)}
    model = zoo.load("digits-ce")
    return zoo_table.Network("digits-ce", "0" * 12, model, noise("in"), outside, (0.02,))


def test_the_candidate_that_keeps_most_is_chosen_and_judged_with_msp(network, tmp_path):
    out = tmp_path / "verdict.jsonl"
    rows = Rows(out, KEY)
    zoo_verdict.judge(network, rows, 3)
    found = read(out)
    validation = {r["detector"]: r["value"] for r in found if r["measure"] == "validation"}
    assert set(validation) == set(zoo_verdict.CANDIDATES)
    chosen = max(validation, key=lambda d: validation[d])
    verdicts = {(r["detector"], r["attack"]) for r in found if r["measure"] == "verdict"}
    both = {chosen, "msp"}
    assert verdicts == {(d, a) for d in both for a in zoo_verdict.ATTACKS} | {("msp", "algorithm1")}
    assert {r["dataset"] for r in found if r["measure"] == "verdict"} == set(zoo_verdict.TESTS)
    zoo_verdict.judge(network, Rows(out, KEY), 3)
    assert read(out) == found  # nothing is measured again


def test_the_choice_does_not_look_at_the_test_sets(network, tmp_path, monkeypatch):
    keeps = {"msp": 0.1, "energy": 0.4, "mirrored_msp": 0.3, "mirrored_energy": 0.2}

    def told(net, rows, measure, name, attack, x_in, sets):
        return keeps[name] if measure == "validation" else asked.append((name, attack)) or 0

    asked = []
    monkeypatch.setattr(zoo_verdict, "mean_auroc", told)
    zoo_verdict.judge(network, Rows(tmp_path / "verdict.jsonl", KEY), 3)
    assert asked[:2] == [("energy", "pgd40x3"), ("energy", "standard")]


def test_each_side_is_what_it_is_said_to_be(tmp_path, monkeypatch):
    sets = {s: numbered(60, s) for s in ("cifar-100", *zoo_verdict.TESTS)}
    seen = []

    def unmoved(net, attack, eps, x_in, x_out, climbed):
        seen.append((climbed, attack, places(x_in), len(x_out)))
        return x_in, x_out

    monkeypatch.setattr(zoo_verdict, "SHOWN", 4)
    monkeypatch.setattr(zoo_table, "attacked", unmoved)
    monkeypatch.setattr(zoo_table, "score", lambda detector, x: x[:, 0, 0, 2] * 255)
    inside = numbered(60)
    for images in sets.values():
        images.images[:, 0, 0, 2] = 9  # out is above in
    model = zoo.load("digits-ce")
    net = zoo_table.Network("digits-ce", "0" * 12, model, inside, sets, (0.02,))
    out = tmp_path / "verdict.jsonl"
    zoo_verdict.judge(net, Rows(out, KEY), 10)
    chosen_on = [lot for _, _, lot, n in seen if n == 10]
    judged_on = [lot for _, _, lot, n in seen if n == 30]
    assert [name for name, *_ in seen[:4]] == list(zoo_verdict.CANDIDATES)
    assert all(lot == chosen_on[0] for lot in chosen_on)
    assert all(lot == judged_on[0] for lot in judged_on)
    assert not chosen_on[0] & judged_on[0]
    assert {(name, attack) for name, attack, _, n in seen if n == 30} == {
        (r["detector"], r["attack"]) for r in read(out) if r["measure"] == "verdict"
    }
    assert {r["value"] for r in read(out)} == {1.0}


def test_cut_off_between_two_sets_no_row_is_written_twice(network, tmp_path):
    out = tmp_path / "verdict.jsonl"
    zoo_verdict.judge(network, Rows(out, KEY), 3)
    whole = out.read_text().splitlines(keepends=True)
    out.write_text("".join(whole[:-2]))
    zoo_verdict.judge(network, Rows(out, KEY), 3)
    assert out.read_text().splitlines(keepends=True) == whole


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
