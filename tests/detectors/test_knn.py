"""KNN against plain loops."""

import os
import subprocess
import sys

import pytest
import references as ref
import torch
from references import close, fitted_on

from rood.detectors import (
    KNN,
)
from rood.detectors.knn import _Rows


@pytest.mark.parametrize("k", [1, 7, 50])
def test_knn_equals_its_reference(k, double, queries, training):
    x, _, q = queries
    close(KNN(double.model, k=k).fit(double.train).score(x), ref.knn(q, training[0], k))


def test_knn_is_the_same_when_the_bank_is_searched_in_parts(double, queries, monkeypatch):
    x, _, _ = queries
    d = KNN(double.model, k=20).fit(double.train)
    whole = d.score(x)
    monkeypatch.setattr("rood.detectors.knn.CHUNK", 7)
    close(d.score(x), whole.detach().numpy(), rtol=1e-12)


def test_knn_does_not_see_the_length_of_the_features(double, training):
    out, y = ref.of_training(training)
    longer = out._replace(features=5 * out.features)
    s = fitted_on(KNN(double.model), out, y).score_outputs(out)
    close(fitted_on(KNN(double.model), longer, y).score_outputs(longer), s.numpy(), rtol=1e-9)


# the bank


def test_rows_come_back_in_order_whatever_the_batches(monkeypatch):
    monkeypatch.setattr("rood.detectors.knn.CHUNK", 5)
    rows = torch.arange(46.0, dtype=torch.float64).view(23, 2)
    kept = _Rows()
    for part in rows.split([1, 4, 0, 12, 6]):
        kept.append(part)
    assert len(kept) == 23
    back = kept.pop_all(torch.device("cpu"))
    assert torch.equal(back, rows)
    assert back.dtype == rows.dtype
    assert len(kept) == 0


FIT = """
import torch
from torch import nn
from rood.detectors.knn import KNN
from rood.models.model import Outputs
from rood.models.wrap import wrap

def peak():
    with open("/proc/self/status") as file:
        return next(int(s.split()[1]) for s in file if s.startswith("VmHWM")) / 2**10


d, b, n = 512, 500, 300
knn = KNN(wrap(nn.Sequential(nn.Flatten(), nn.Linear(d, 2))))
before = peak()
knn.start()
for _ in range(n):
    knn.see(Outputs(torch.zeros(b, 2), torch.rand(b, d)), torch.zeros(b, dtype=torch.long))
knn.finish()
print((peak() - before) / (n * b * d * 4 / 2**20))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_the_bank_is_in_memory_once():
    """1 and a block of it; torch.cat makes 2."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FIT]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert 1.0 < float(done.stdout) < 1.65
