"""The gradient of a score with respect to the pixels, for detectors that step along it."""

import torch

from rood.detectors.base import ScoreFunction
from rood.shapes import Images, Scores


def score_and_gradient(score: ScoreFunction, x: Images) -> tuple[Scores, Images]:
    """s(x) and its gradient, both constants for whoever differentiates further.

    Works where the caller is inside no_grad or inference_mode, and leaves no .grad behind.
    """
    with torch.inference_mode(False), torch.enable_grad():
        probe = x.detach().clone().requires_grad_()
        s = score(probe)
        (grad,) = torch.autograd.grad(s.sum(), probe)
    return s.detach(), grad


def at(point: Images, x: Images) -> Images:
    """`point` by value, with the gradient passed straight through to x.

    For point = x + eta sign(g(x)) this is the exact Jacobian almost everywhere: sign is flat.
    """
    return point + (x - x.detach())
