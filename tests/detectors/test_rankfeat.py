"""RankFeat against singular values."""

import numpy as np
import pytest
import references as ref
import torch
from references import close
from torch import nn

from rood.detectors import RankFeat
from rood.errors import CapabilityError
from rood.models.wrap import wrap


def cut(maps):
    """Each map as channels x places, without its leading singular component."""
    found = []
    for f in maps:
        u, s, v = np.linalg.svd(f.reshape(len(f), -1), full_matrices=False)
        found.append((f.reshape(len(f), -1) - s[0] * np.outer(u[:, 0], v[0])).reshape(f.shape))
    return torch.from_numpy(np.stack(found))


@pytest.mark.parametrize("channels", [2, 30])  # less and more than the 16 places of the last map
def test_rankfeat_equals_a_reference_by_singular_values(channels, double):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(5, channels, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 4),
    ).double()
    x = double.inside[:6]
    early = net[:2](x)
    late = net[2:4](early)
    z = (net[2:](cut(early.detach().numpy())) + net[4:](cut(late.detach().numpy()))) / 2
    d = RankFeat(wrap(net), temperature=2.0)
    close(d.score(x), [-2 * ref.lse([v / 2 for v in row]) for row in z.tolist()], rtol=1e-8)


def test_rankfeat_takes_the_layers_it_is_told_and_needs_a_map(double, x):
    one = RankFeat(double.model, layers=("5",))
    assert not torch.equal(one.score(x), RankFeat(double.model).score(x))
    flat = wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double())
    with pytest.raises(CapabilityError, match="feature maps"):
        RankFeat(flat).score(x)
