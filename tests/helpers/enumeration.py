"""The exact range of tiny networks: every pattern of active units is a linear program."""

import itertools

import numpy as np
import torch
from scipy.optimize import linprog
from torch import nn

from rood.certify import bounds
from rood.detectors import Head
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf

SEEDS = 20
EPS = 0.2


def gap(seed, method):
    """How far the bounds of a tiny network lie inside its exact range, and their relative width."""
    g = generator(seed, "enumeration")
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    net = nn.Sequential(*net, nn.Linear(4, 2)).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    x = torch.rand(1, 1, 1, 2, generator=g).double()
    least, most = exact(net, (x - EPS).clamp(min=0).flatten(), (x + EPS).clamp(max=1).flatten())
    model = scored(wrap(net, head="5"))
    with torch.no_grad():  # the score is z_0 - z_1
        model.net.score = nn.Linear(4, 1).double()
        model.net.score.weight.copy_((net[5].weight[0] - net[5].weight[1])[None])
        model.net.score.bias.copy_((net[5].bias[0] - net[5].bias[1])[None])
    low, high = (v.item() for v in bounds(Head(model), x, Linf(EPS), method))
    width = most - least  # 0 where no unit that counts is active anywhere
    return float(max(low - least, most - high)), float((high - low) / width) if width else 1.0


def exact(net, low, high):
    """The least and the largest z_0 - z_1, by linear programs."""
    w = [net[i].weight.detach().numpy() for i in (1, 3, 5)]
    b = [net[i].bias.detach().numpy() for i in (1, 3, 5)]
    found = []
    for pattern in itertools.product((0, 1), repeat=8):
        first, second = np.array(pattern[:4]), np.array(pattern[4:])
        v, c = first[:, None] * w[0], first * b[0]
        u, d = w[1] @ v, w[1] @ c + b[1]
        signs = np.concatenate([1 - 2 * first, 1 - 2 * second])  # active: -(.) <= 0
        rows, rest = np.concatenate([w[0], u]), np.concatenate([b[0], d])
        last = (w[2][0] - w[2][1]) * second
        slope, shift = last @ u, last @ d + b[2][0] - b[2][1]
        for sign in (1, -1):
            solved = linprog(
                sign * slope,
                A_ub=signs[:, None] * rows,
                b_ub=-signs * rest,
                bounds=list(zip(low.tolist(), high.tolist(), strict=True)),
            )
            if solved.status == 0:
                found.append(sign * solved.fun + shift)
    return min(found), max(found)
