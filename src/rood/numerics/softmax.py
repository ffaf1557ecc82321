"""Functions of the softmax p of logits z, in forms that never saturate."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

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
    near = d.abs() < 1e-4
    small = d.where(near, torch.zeros_like(d))
    phi = torch.where(near, small.square() * (0.5 + small / 3), (d - 1) * d.exp() + 1)
    divergence = phi.mean(dim=1).clamp_min(torch.finfo(d.dtype).tiny)  # 0 only if all z are equal
    return log_entropy(z) - divergence.log().to(z.dtype)


def uniform_cross_entropy(z: Logits) -> Scores:
    r"""-(1/k) sum_j log p_j = lse(z) - mean(z): how far p is from uniform; log k where it is."""
    return z.logsumexp(dim=1) - z.mean(dim=1)


def _others(z: Logits, y: Labels) -> Logits:
    """The logits, with that of class y at minus infinity."""
    return z.scatter(1, y[:, None], -torch.inf)
