"""Words far from all ID words, against plain loops."""

import math
from itertools import pairwise

import pytest
import tiny_clip
from tiny_clip import IN

from rood.errors import InputError
from rood.models.sources._towers import Towers
from rood.models.sources.clip import zero_shot
from rood.models.sources.negative_words import negative_words

CORPUS = ["car", "ship", "tree", "cat", "moon", "car", "cats", "dog", "house", "big dog"]
INSIDE = [*IN, "bird", "fish", "cow"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield tiny_clip.save(tmp_path_factory.mktemp("clip"))


def quantile(values, q):
    """With linear interpolation between the neighbours."""
    values = sorted(values)
    place = q * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


@pytest.mark.parametrize("q", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("rows", [2, 1024])
def test_the_furthest_by_the_quantile_of_their_cosines_come_first(q, rows, folder, monkeypatch):
    monkeypatch.setattr("rood.models.sources.negative_words.ROWS", rows)
    towers = Towers.load(folder)
    own = towers.directions(INSIDE, ["a {}"]).double().tolist()
    near = {}
    for word in ("car", "ship", "tree", "moon", "cats", "dog", "house"):  # no ID word, none twice
        (v,) = towers.directions([word], ["a {}"]).double().tolist()
        cosines = [sum(a * b for a, b in zip(v, u, strict=True)) for u in own]
        near[word] = quantile(cosines, q)
    want = sorted(near, key=near.get)
    gaps = [near[b] - near[a] for a, b in pairwise(want)]
    assert min(gaps) > 1e-5  # so that rounding cannot change the order
    found = negative_words(folder, inside=INSIDE, corpus=CORPUS, quantile=q, prompt="a {}")
    assert found == want
    few = negative_words(folder, inside=INSIDE, corpus=CORPUS, quantile=q, prompt="a {}", count=3)
    assert few == want[:3]


def test_what_it_finds_are_the_ood_words_of_a_model(folder):
    found = negative_words(folder, inside=IN, corpus=CORPUS, count=4)
    assert zero_shot(folder, inside=IN, outside=found).classes == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inside": []}, "got 0 ID words, 10 words"),
        ({"count": 0}, "count >= 1"),
        ({"quantile": 1.5}, "and 1.5"),
        ({"corpus": ["cat", "big dog"]}, "other words than the ID words, got 2 of those"),
        ({"corpus": []}, "got 2 ID words, 0 words"),
    ],
)
def test_what_cannot_be_is_refused(change, said, folder):
    with pytest.raises(InputError, match=said):
        negative_words(folder, **({"inside": IN, "corpus": CORPUS} | change))
