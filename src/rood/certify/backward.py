"""Linear bounds, pulled back from the outputs to the pixels (CROWN)."""

from collections.abc import Callable

import torch
from torch import Tensor

from rood.certify.forward import Forward, feeds_curves
from rood.certify.graph import Operations
from rood.certify.layers.base import Relaxation, dot
from rood.certify.region import Region
from rood.numerics.box import Box, rounding
from rood.numerics.window import Window

MEMORY = 2**28  # bytes for the coefficients of one backward pass
CACHE = 2**25  # as many where they are a processor's, which is fastest if its cache holds them
COPIES = 6  # tensors of the size of the coefficients that are alive at once

Replace = Callable[[int, Relaxation, Tensor], Relaxation]


def least(
    found: Forward,
    place: int,
    a: Tensor,
    owner: Tensor,
    replace: Replace | None = None,
    begun: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    r"""A lower bound of a.y over the region, y the result of a node, for each row of a.

    The function is moved from a node to those before it by each layer's relaxation, until only the
    pixels are left: a.y >= A.x + c, whose minimum over the region is known. Zhang et al.,
    *Efficient Neural Network Robustness Certification with General Activation Functions*, NeurIPS
    2018, arXiv:1811.00866. Where two layers read a node, their coefficients add up. begun: the
    number and the slack of what was pulled before.
    """
    coefficients = {place: a}
    offset, slack = (a.new_zeros(len(a)), a.new_zeros(len(a))) if begun is None else begun
    for at in range(place, 0, -1):
        if (now := coefficients.pop(at, None)) is None:
            continue
        relaxation = found.relaxation(at)
        relaxation = relaxation if replace is None else replace(at, relaxation, owner)
        pulled = relaxation.pull(now, owner)
        offset, slack = offset + pulled.offset, slack + pulled.slack
        for source, more in zip(found.graph.nodes[at].inputs, pulled.inputs, strict=True):
            if (there := coefficients.get(source)) is not None:
                both = there.abs() + more.abs()
                slack = slack + rounding(0, a) * dot(both, found.boxes[source].size, owner)
                more = there + more
            coefficients[source] = more
    pixels = found.region.least(coefficients[0], owner)
    total = pixels + offset
    return total - slack - rounding(len(found.boxes), a) * (pixels.abs() + offset.abs() + slack)


def least_entries(
    found: Forward, place: int, factors: Tensor, entries: Tensor, owner: Tensor
) -> Tensor:
    """As `least`, of a factor times one entry of a node's map for each row.

    As long as convolutions and curves are passed, an entry depends on a window of the map alone.
    """
    nodes = found.graph.nodes
    window = Window.of_entries(factors, entries, nodes[place].shape)
    offset, slack = factors.new_zeros(len(factors)), factors.new_zeros(len(factors))
    while place > 0 and window.smaller(nodes[place].shape):
        if (pulled := found.relaxation(place).pull_window(window, owner)) is None:
            break
        window, offset, slack = pulled.window, offset + pulled.offset, slack + pulled.slack
        (place,) = nodes[place].inputs
    begun = offset, slack + rounding(len(nodes), offset) * offset.abs()
    return least(found, place, window.whole(nodes[place].shape), owner, begun=begun)


def rows_at_once(graph: Operations, like: Tensor) -> int:
    """How many rows of coefficients memory holds."""
    largest = max(torch.Size(n.shape).numel() for n in graph.nodes)
    room = MEMORY if like.is_cuda else CACHE
    return max(1, room // (COPIES * largest * like.element_size()))


Least = Callable[[Forward, int, Tensor, Tensor], Tensor]


def both_ends(
    found: Forward, place: int, a: Tensor, owner: Tensor, lower: Least = least, copies: int = 1
) -> Box:
    """Bounds of each row's a.y, in chunks that memory holds: a.y <= -(least -a.y).

    copies: how often `lower` keeps what one pass computes.
    """
    if len(a) == 0:
        return Box(a.new_zeros(0), a.new_zeros(0))
    size = max(1, rows_at_once(found.graph, a) // (2 * copies))
    ends = []
    for some, whose in zip(a.split(size), owner.split(size), strict=True):
        both = lower(found, place, torch.cat([some, -some]), torch.cat([whose, whose]))
        ends.append(both.view(2, -1))
    low, minus_high = torch.cat(ends, dim=1)
    return Box(low, -minus_high)


def crown(graph: Operations, region: Region) -> Forward:
    """Boxes of every node, tightened by a backward pass where a relaxation depends on them."""
    found = Forward(graph, region)
    for _ in graph.nodes:
        place = found.add()
        if feeds_curves(graph, place) and not found.exact(place):
            found.boxes[place] = _tightened(found, place)
    return found


def _tightened(found: Forward, place: int) -> Box:
    """The box of a node, entry by entry, where a tighter one would help a layer that reads it."""
    box = found.boxes[place]
    masks = [layer.loose(box) for layer in found.graph.readers(place)]
    owner, entry = torch.stack(masks).any(dim=0).flatten(1).nonzero(as_tuple=True)
    low, high = box.low.flatten(1).clone(), box.high.flatten(1).clone()
    size = max(1, rows_at_once(found.graph, low) // 2)
    if len(owner) == 0:
        return box
    for whose, which in zip(owner.split(size), entry.split(size), strict=True):
        ends = _ends(found, place, which, whose)
        new = Box(low[whose, which], high[whose, which]).within(ends)
        low[whose, which], high[whose, which] = new
    return Box(low.view_as(box.low), high.view_as(box.high))


def _ends(found: Forward, place: int, entries: Tensor, owner: Tensor) -> Box:
    """Bounds of one entry of a node's result for each row."""
    shape, like = found.graph.nodes[place].shape, found.boxes[place].low
    one = torch.ones(len(owner), dtype=like.dtype, device=like.device)
    if len(shape) == 3:
        both, twice = torch.cat([one, -one]), torch.cat([owner, owner])
        ends = least_entries(found, place, both, torch.cat([entries, entries]), twice)
        low, minus_high = ends.view(2, -1)
        return Box(low, -minus_high)
    a = like.new_zeros(len(owner), torch.Size(shape).numel())
    a[torch.arange(len(owner)), entries] = one
    return both_ends(found, place, a.view(-1, *shape), owner)
