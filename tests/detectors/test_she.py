"""SHE against plain loops."""

import pytest
import references as ref
import torch
from references import close

from rood.detectors import (
    SHE,
)


@pytest.mark.parametrize("wrong", ["some", "a whole class"])
def test_she_equals_its_reference(wrong, double, x, features, training):
    f, y, z = training
    y = y.copy()
    if wrong == "some":
        y[::4] = (y[::4] + 1) % 3  # labels the network does not agree with
    else:
        y[y == 1] = 0
        y[::7] = 1
        y[z.argmax(axis=1) == 1] = 2  # class 1 is never right
    images = torch.cat([x for x, _ in double.train])
    d = SHE(double.model).fit([(images, torch.from_numpy(y))])
    want = ref.she(features, double.model(x).logits.tolist(), f, y, z)
    close(d.score(x), want, rtol=1e-9)
