"""A goal whose kernels are recorded once and replayed: a CUDA graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch

from rood.attacks.base import AnyGoal, Goal, as_goal
from rood.errors import CapabilityError
from rood.shapes import Images, Scores


def graphed(goal: AnyGoal, x: Images) -> Goal:
    """The same goal, replayed for batches of x's shape; others are computed as ever.

    The same kernels on the same numbers give the same values. It pays where launching a kernel
    takes longer than running it: for small batches. A goal that waits for the GPU cannot be
    recorded, nor one that draws random numbers or is cut off from the pixels.
    """
    own = as_goal(goal)
    if x.device.type != "cuda" or own.stochastic:
        what = "one that differs from call to call" if own.stochastic else f"images on {x.device}"
        raise CapabilityError(f"expected a fixed goal of images on a GPU to record, got {what}")
    like = x.detach().clone().requires_grad_()
    replay = cast(
        Callable[[Images], Scores], torch.cuda.make_graphed_callables(own.function, (like,))
    )

    def function(z: Images) -> Scores:
        # a copy: the next replay writes over what this one returns
        return replay(z).clone() if z.shape == like.shape else own(z)

    return replace(own, function=function)
