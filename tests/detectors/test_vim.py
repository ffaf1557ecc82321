"""ViM against plain loops."""

import pytest
import references as ref
from references import close

from rood.detectors import (
    ViM,
)


@pytest.mark.parametrize("dimension", [None, 5])
def test_vim_equals_its_reference(dimension, double, queries, training):
    x, z, q = queries
    f, _, fz = training
    head = double.model.head
    weight, bias = head.weight.numpy(), head.bias.numpy()
    d = ViM(double.model, dimension=dimension).fit(double.train)
    want = ref.vim(q, z, f, fz, weight, bias, dimension or 8)
    close(d.score(x), want, rtol=1e-6)
