"""Search for points that leave their bounds: random ones, corners, and ascent of the gradient."""

import torch

from rood.certify import Certifier
from rood.detectors import MSP, Energy, MaxLogit
from rood.seeds import generator
from rood.threat import L2, Linf

POINTS, STEPS = 60, 10
PLANS = (  # each method, each norm, each score
    (MSP, "crown", Linf(0.1)),
    (MSP, "alpha", Linf(0.02)),
    (Energy, "crown", L2(0.5)),
    (Energy, "crown-ibp", Linf(0.1)),
    (MaxLogit, "ibp", Linf(0.02)),
    (MaxLogit, "ibp", L2(0.5)),
)


def points(x, threat, *, n=POINTS, seed=0):
    """n allowed images around each of x, (n, b, ...): inside, on corners and at the border."""
    g = generator(seed, "points")
    noise = torch.rand(n, *x.shape, generator=g, dtype=torch.float64).to(x) * 2 - 1
    noise[::2] = noise[::2].sign()
    delta = noise * threat.eps
    if threat.norm == "l2":
        delta = threat.shrink(10 * noise.flatten(0, 1)).view_as(noise)
    many = x.expand(n, *x.shape)
    flat = threat.project((many + delta).flatten(0, 1), many.flatten(0, 1))
    return flat.view_as(many)


def climbed(score, x, threat, sign, *, steps=STEPS):
    """Where a plain ascent of sign times the score ends."""
    at = x.clone()
    for _ in range(steps):
        at.requires_grad_()
        (grad,) = torch.autograd.grad(score(at).sum(), at)
        at = threat.project(at.detach() + sign * threat.eps / 4 * threat.ascent(grad), x).detach()
    return at


def escapes(detector, x, threat, method, *, n=POINTS):
    """How far any point found lies outside its bounds; 0 where none does."""
    low, high = Certifier(detector, threat, method)(x)
    ends = [climbed(detector.score_images, x, threat, sign) for sign in (-1, 1)]
    tried = torch.cat([x[None], torch.stack(ends), points(x, threat, n=n)])
    with torch.no_grad():
        s = detector.score(tried.flatten(0, 1)).view(len(tried), -1)
    return max(0.0, float((low - s).max()), float((s - high).max()))


def any_escape(model, x, plans=PLANS):
    """The largest escape of several scores of a network, under several threats and methods."""
    return max(escapes(make(model), x, threat, method) for make, method, threat in plans)


def of_layer(layer, *boxes, n=300):
    """How far outputs of a layer leave its interval and its lines, at points of its boxes.

    Up to the rounding of this test itself.
    """
    found, relaxation = layer.over(*boxes), layer.relaxed(*boxes)
    rows = torch.randn(6, *found.low.shape[1:], generator=generator(0, "rows"), dtype=torch.float64)
    pulled = relaxation.pull(rows, torch.zeros(len(rows), dtype=torch.long))
    worst = 0.0
    for draw in range(n):
        x = [_point(box, draw, i) for i, box in enumerate(boxes)]
        y = layer.value(*x)
        worst = max(worst, float((found.low - y).max()), float((y - found.high).max()))
        line = pulled.offset - pulled.slack
        for a, v in zip(pulled.inputs, x, strict=True):
            line = line + (a * v).flatten(1).sum(dim=1)
        worst = max(worst, float((line - (rows * y).flatten(1).sum(dim=1)).max()))
    return worst if worst > 1e-12 else 0.0


def _point(box, draw, number):
    place = torch.rand(box.low.shape, generator=generator(draw, "place", number)).double()
    place = place.round() if draw % 3 == 0 else place
    return (box.low + place * (box.high - box.low)).maximum(box.low).minimum(box.high)
