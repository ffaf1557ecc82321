"""The gradient of a score with respect to the pixels, for detectors that step along it."""

import torch

from rood.detectors.base import ScoreFunction
from rood.shapes import Images, Scores


def score_and_gradient(score: ScoreFunction, x: Images) -> tuple[Scores, Images]:
    """s(x) and its gradient, both detached.

    Works inside no_grad and inference_mode, and leaves no .grad behind.
    """
    with torch.inference_mode(False), torch.enable_grad():
        probe = x.detach().clone().requires_grad_()
        s = score(probe)
        (grad,) = torch.autograd.grad(s.sum(), probe)
    return s.detach(), grad


def at(point: Images, x: Images) -> Images:
    """`point`, with a straight-through gradient to x.

    For point = x + eta sign(g(x)) this is the exact Jacobian almost everywhere: sign is flat.
    """
    return point + (x - x.detach())


def smooth_sign(score: ScoreFunction, x: Images) -> Images:
    """tanh of the score's gradient over its mean size: a differentiable sign.

    Where x requires a gradient, it includes second-order terms.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        (grad,) = torch.autograd.grad(score(x).sum(), x, create_graph=True)
    else:
        _, grad = score_and_gradient(score, x)
    scale = grad.detach().abs().flatten(1).mean(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
    return torch.tanh(grad / scale)
