"""What every data test needs: two small pictures, a way to save them, and a check of refusals."""

import re

import numpy as np
import pytest
from PIL import Image

RNG = np.random.default_rng(7)
COLOUR = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (6, 5), dtype=np.uint8)


def save(path, pixels=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(COLOUR if pixels is None else pixels).save(path, **options)
    return path


def refused(kind, words, call, *args, **options):
    with pytest.raises(kind, match=re.escape(words)) as caught:
        call(*args, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not sentence.endswith(".")
