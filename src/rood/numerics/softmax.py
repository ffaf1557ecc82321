"""Functions of the softmax p of logits z, in forms that never saturate."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from rood.numerics.box import Box
from rood.shapes import Labels, Logits, Scores


def margin(z: Logits, temperature: float | Float[Tensor, ""] = 1.0) -> Scores:
    r"""m = lse_{j != y}(z_j) - z_y with y = argmax z, so that max p = 1 / (1 + e^m).

    With a temperature T: T (m(z / T) - log(k - 1)) + log(k - 1), which ranks like m(z / T) but
    stays in the units of a logit; m(z / T) itself is close to log(k - 1) for large T.
    """
    top, y = z.max(dim=1)
    offset = math.log(z.shape[1] - 1)
    return temperature * ((_others(z, y) / temperature).logsumexp(dim=1) - offset) - top + offset


def margin_over(z: Logits, y: Labels) -> Scores:
    r"""lse_{j != y}(z_j) - z_y for given classes y: the cross-entropy is log(1 + e^this)."""
    return _others(z, y).logsumexp(dim=1) - z.gather(1, y[:, None]).squeeze(1)


def log_entropy(z: Logits) -> Scores:
    r"""log H(p), H = sum_j p_j a_j with a_j = -log p_j: lse_j(log p_j + log a_j).

    For the top class a = log(1 + e^m) is tiny and computed from the margin m; log a tends to m.
    """
    log_p = z.log_softmax(dim=1)
    y = z.argmax(dim=1, keepdim=True)
    m = margin(z)
    safe = m.clamp_min(-20)  # below, softplus(m) = e^m to double precision's last digits
    log_a_top = torch.where(m > -20, softplus(safe).log(), m)
    log_a = torch.zeros_like(z).scatter(1, y, log_a_top[:, None])
    others = torch.ones_like(z, dtype=torch.bool).scatter(1, y, False)
    log_a = torch.where(others, (-log_p).where(others, torch.ones_like(z)).log(), log_a)
    return (log_p + log_a).logsumexp(dim=1)


def entropy_log_odds(z: Logits) -> Scores:
    r"""log H(p) - log(log k - H(p)): the log-odds of H / log k, saturated at neither end.

    log k - H, the divergence of p from the uniform distribution, is (1/k) sum_j phi(d_j) with
    d_j = log(k p_j) and phi(d) = (d - 1) e^d + 1 >= 0: nothing cancels where H rounds to log k.
    """
    d = z.double().log_softmax(dim=1) + math.log(z.shape[1])
    divergence = _phi(d).mean(dim=1).clamp_min(torch.finfo(d.dtype).tiny)  # 0 if all z are equal
    return log_entropy(z) - divergence.log().to(z.dtype)


def _phi(d: Tensor) -> Tensor:
    """(d - 1) e^d + 1, to the last digits also near 0, where it is d^2 / 2."""
    near = d.abs() < 1e-4
    small = d.where(near, torch.zeros_like(d))
    return torch.where(near, small.square() * (0.5 + small / 3), (d - 1) * d.exp() + 1)


def uniform_cross_entropy(z: Logits) -> Scores:
    r"""-(1/k) sum_j log p_j = lse(z) - mean(z): how far p is from uniform; log k where it is."""
    return z.logsumexp(dim=1) - z.mean(dim=1)


def _others(z: Logits, y: Labels) -> Logits:
    """The logits, with that of class y at minus infinity."""
    return z.scatter(1, y[:, None], -torch.inf)


def odds_within(gaps: Box, temperature: float | Tensor = 1.0) -> Box:
    r"""m_i = T lse_{j != i}((z_j - z_i) / T) for every class i, from gaps z_j - z_i at (b, i, j).

    With T = 1, p_i = 1 / (1 + e^m_i). It grows with every gap, so ends give ends.
    """
    own = torch.eye(gaps.low.shape[1], dtype=torch.bool, device=gaps.low.device)
    ends = (g.masked_fill(own, -torch.inf) / temperature for g in gaps)
    return Box(*(temperature * g.logsumexp(dim=2) for g in ends))


def margin_within(gaps: Box, temperature: float | Tensor = 1.0) -> Box:
    r"""Bounds of `margin`, which is min_i m_i: (1 - p) / p is least for the most probable class."""
    low, high = odds_within(gaps, temperature)
    shift = (1 - temperature) * math.log(low.shape[1] - 1)
    return Box(low.amin(dim=1), high.amin(dim=1)).moved(shift)


def lse_within(z: Box, gaps: Box | None = None, temperature: float = 1.0) -> Box:
    r"""Bounds of T lse(z / T), which is z_i + T lse_j((z_j - z_i) / T) for every i."""
    lse = lambda v: temperature * (v / temperature).logsumexp(dim=-1)
    found = Box(lse(z.low), lse(z.high))
    if gaps is None:
        return found
    low, high = z.low + lse(gaps.low), z.high + lse(gaps.high)
    return found.within(Box(low.amax(dim=1), high.amin(dim=1)))


def entropy_log_odds_within(gaps: Box) -> Box:
    r"""Bounds of `entropy_log_odds`, from those of each term of H and of log k - H.

    With odds e^m, p log(1 / p) = softplus(m) / (1 + e^m) is largest, 1 / e, at m = log(e - 1), and
    phi of d = log k - softplus(m) least, 0, at d = 0; both fall on both sides. H and log k - H add
    up to log k, so each bounds the other.
    """
    m, k = odds_within(gaps), gaps.low.shape[1]
    term = lambda v: -softplus(v) + torch.where(v > -20, softplus(v.clamp_min(-20)).log(), v)
    peak = math.log(math.e - 1)
    ends = torch.stack([term(m.low), term(m.high)])
    most = ends.amax(dim=0).masked_fill((m.low < peak) & (m.high > peak), -1.0)
    entropy = Box(*(v.logsumexp(dim=1).exp() for v in (ends.amin(dim=0), most)))
    d = Box(*(math.log(k) - softplus(v) for v in (m.high, m.low)))
    ends = torch.stack([_phi(d.low), _phi(d.high)])
    least = ends.amin(dim=0).masked_fill((d.low < 0) & (d.high > 0), 0.0)
    rest = Box(least.mean(dim=1), ends.amax(dim=0).mean(dim=1))
    both = entropy.within(rest.negated().moved(math.log(k)).widened(1e-12))
    other = rest.within(entropy.negated().moved(math.log(k)).widened(1e-12))
    low, high = (v.clamp_min(torch.finfo(v.dtype).tiny).log() for v in other)
    return Box(both.low.clamp_min(1e-300).log() - high, both.high.log() - low)
