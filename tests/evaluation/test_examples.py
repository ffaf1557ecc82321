"""Which attacked images are kept: the telling ones, whatever parts a set was attacked in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rood.evaluation.examples import CLASSES, EXTREMES, FEWER_CLASSES, LARGE, chosen, joined


def test_one_per_class_the_largest_changes_and_those_that_resist_are_kept():
    before = np.zeros(60)
    after = np.linspace(1, 2, 60)[::-1].copy()
    after[[17, 31]] = 9.0, 8.0  # the largest changes
    after[[44, 52]] = -3.0, -2.0  # these went the wrong way
    labels = np.arange(60) % 3
    kept = chosen(before, after, labels, sign=1, values=784)
    assert kept.tolist() == [0, 1, 2, 17, 31, 44, 52]
    mirrored = chosen(before, -after, labels, sign=-1, values=784)
    assert mirrored.tolist() == kept.tolist()


def test_large_images_and_many_classes_are_few():
    numbers = np.zeros(500)
    small = chosen(numbers, numbers, np.arange(500), sign=1, values=LARGE)
    large = chosen(numbers, numbers, np.arange(500), sign=1, values=LARGE + 1)
    assert len(small) == CLASSES
    assert len(large) == FEWER_CLASSES == EXTREMES


scores = st.floats(width=32) | st.integers(-2, 2).map(float)
images = st.lists(st.tuples(scores, scores, st.integers(-1, 12)), min_size=1, max_size=40)


@given(images, st.sampled_from([1, -1]), st.integers(1, 40))
def test_the_parts_of_a_set_do_not_matter(found, sign, size):
    before, after, labels = (np.array(column) for column in zip(*found, strict=True))
    places = np.arange(len(found))
    original = np.zeros((len(found), 1, 2, 2))
    looks = {"before": before, "after": after, "labels": labels.astype(int)}
    looks |= {"places": places, "original": original}
    parts = [
        joined({k: v[i : i + size] for k, v in looks.items()}, sign)
        for i in range(0, len(found), size)
    ]
    together = {k: np.concatenate([p[k] for p in parts]) for k in looks}
    assert joined(together, sign)["places"].tolist() == joined(looks, sign)["places"].tolist()
