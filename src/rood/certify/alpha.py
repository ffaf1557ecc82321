"""Lower slopes chosen for each bound by gradient ascent."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rood.certify import backward
from rood.certify.forward import Forward
from rood.certify.layers.base import Between, Elementwise, Lines, Pulled, Relaxation, pick

STEPS = 20
RATE = 0.2  # of Adam, where slopes are from 0 to 1


def least(found: Forward, place: int, a: Tensor, owner: Tensor) -> Tensor:
    """As `backward.least`, with lower slopes that make each row's bound as large as possible.

    Every slope between those that a layer allows gives a bound, so each step's is sound and the
    best of all counts. Xu et al., *Fast and Complete: Enabling Complete Verification with Rapid and
    Massively Parallel Incomplete Verifiers*, ICLR 2021, arXiv:2011.13824; boxes of inner nodes stay
    as they are.
    """
    best = backward.least(found, place, a, owner)
    ranges = {at: r for at in range(1, place) if (r := _freedom(found, at, owner)) is not None}
    if not ranges:
        return best
    with torch.inference_mode(False), torch.enable_grad():
        slopes = {
            at: pick(_between(found, at).lines.low_slope, owner).expand_as(low).clone()
            for at, (low, _) in ranges.items()
        }
        climbing = [s.requires_grad_() for s in slopes.values()]
        optimizer = torch.optim.Adam(climbing, RATE)
        for _ in range(STEPS):
            replace = lambda at, relaxation, _: _steered(at, relaxation, slopes, owner)
            value = backward.least(found, place, a, owner, replace)
            best = best.maximum(value.detach())
            optimizer.zero_grad()
            (-value.sum()).backward()
            optimizer.step()
            with torch.no_grad():
                for at, (low, high) in ranges.items():
                    slopes[at].copy_(slopes[at].maximum(low).minimum(high))
    return best


def _between(found: Forward, at: int) -> Between:
    relaxation = found.relaxation(at)
    assert isinstance(relaxation, Between)
    return relaxation


def _freedom(found: Forward, at: int, owner: Tensor) -> tuple[Tensor, Tensor] | None:
    """The slopes that a node's lower lines may have, for each row; None where none has a choice."""
    node = found.graph.nodes[at]
    if not isinstance(node.layer, Elementwise):
        return None
    box = found.boxes[node.inputs[0]]
    allowed = node.layer.freedom(box)
    if allowed is None or bool((allowed.low == allowed.high).all()):
        return None
    rows = len(owner)
    low, high = (pick(v, owner).expand(rows, *v.shape[1:]) for v in allowed)
    return low, high


def _steered(
    at: int, relaxation: Relaxation, slopes: dict[int, Tensor], owner: Tensor
) -> Relaxation:
    if at not in slopes:
        return relaxation
    assert isinstance(relaxation, Between)
    lines = Lines(*(pick(v, owner) for v in relaxation.lines))
    return _EachRow(Between(lines, pick(relaxation.size, owner)).steered(slopes[at]))


@dataclass(frozen=True)
class _EachRow(Relaxation):
    """A relaxation with lines for each row instead of each image."""

    inner: Between

    def pull(self, a: Tensor, owner: Tensor) -> Pulled:
        return self.inner.pull(a, torch.arange(len(a), device=a.device))
