"""Differences of logits as linear functions of the features."""

import torch
from torch import Tensor, nn

from rood.detectors.base import OutputBox
from rood.numerics.box import Box

MOST = 20  # classes up to which every pair is bounded as a whole


def gap_rows(head: nn.Linear) -> Tensor | None:
    """W_j - W_i for every i < j; None for too many classes."""
    if head.out_features > MOST:
        return None
    weight = head.weight.double()
    i, j = _pairs(weight)
    return weight[j] - weight[i]


def gaps(out: OutputBox, head: nn.Linear) -> Box:
    """Bounds of z_j - z_i at (b, i, j); the last forms are those of `gap_rows`, if it has any."""
    low, high = out.logits
    whole = Box(low[:, None] - high[..., None], high[:, None] - low[..., None])
    own = torch.eye(low.shape[1], dtype=torch.bool, device=low.device)
    whole = Box(*(v.masked_fill(own, 0.0) for v in whole))
    if out.forms is None or head.out_features > MOST:
        return whole
    i, j = _pairs(low.T)
    shift = 0.0 if head.bias is None else head.bias.double()[j] - head.bias.double()[i]
    forms = Box(*(v[:, -len(i) :] for v in out.forms)).moved(shift)
    low, high = (v.clone() for v in whole)
    low[:, i, j], high[:, i, j] = forms
    low[:, j, i], high[:, j, i] = forms.negated()
    return whole.within(Box(low, high))


def _pairs(like: Tensor) -> tuple[Tensor, Tensor]:
    i, j = torch.triu_indices(len(like), len(like), 1, device=like.device)
    return i, j
