"""Boxes of every operation of a network, from the image on."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rood.certify.graph import Operations, is_affine
from rood.certify.layers.base import Affine, Relaxation
from rood.certify.region import Region
from rood.numerics.box import Box

SURE = 1e-11  # of a length: far above the rounding of its squares


@dataclass
class Forward:
    """What is known of every node over a region: a box, and for L2 near the image a length.

    A node that reads the image by affine layers of which at most one mixes entries is exact: with
    one path from a pixel to an entry, |L2 L1| = |L2| |L1|, so interval bounds lose nothing. For L2,
    the row of L1 with entries w_j moves an entry by at most e |w|_2; `squares` is |w|^2.
    """

    graph: Operations
    region: Region
    boxes: list[Box] = field(default_factory=list)
    mixed: list[int | None] = field(default_factory=list)  # mixing layers before; None: not affine
    squares: list[Tensor | None] = field(default_factory=list)
    middles: list[Box | None] = field(default_factory=list)  # the image's values, where squares are
    _relaxations: dict[int, Relaxation] = field(default_factory=dict)

    def add(self) -> int:
        """Bound the next node by intervals; its place."""
        place = len(self.boxes)
        node = self.graph.nodes[place]
        if node.layer is None:
            self.boxes.append(self.region.box)
            self.mixed.append(0)
            self.squares.append(torch.ones_like(self.region.image[:1]))
            self.middles.append(Box(self.region.image, self.region.image))
            return place
        box = node.layer.over(*(self.boxes[i] for i in node.inputs))
        before = [self.mixed[i] for i in node.inputs]
        exact = isinstance(node.layer, Affine) and None not in before
        mixing = isinstance(node.layer, Affine) and node.layer.mixing
        self.mixed.append(max(b for b in before if b is not None) + mixing if exact else None)
        self.squares.append(self._squares(place))
        self.boxes.append(self._within_ball(place, box))
        return place

    def exact(self, place: int) -> bool:
        """Whether no bound of a node could be tighter."""
        mixed = self.mixed[place]
        if mixed is None or mixed > 1:
            return False
        return self.region.radius is None or self.squares[place] is not None

    def relaxation(self, place: int) -> Relaxation:
        """That of a node, whose inputs have their final boxes."""
        if place not in self._relaxations:
            node = self.graph.nodes[place]
            assert node.layer is not None
            self._relaxations[place] = node.layer.relaxed(*(self.boxes[i] for i in node.inputs))
        return self._relaxations[place]

    def _squares(self, place: int) -> Tensor | None:
        node, mixed = self.graph.nodes[place], self.mixed[place]
        if mixed is None or mixed > 1 or len(node.inputs) != 1:
            return None
        assert isinstance(node.layer, Affine)
        before = self.squares[node.inputs[0]]
        return None if before is None else node.layer.mapped(torch.square).linear(before)

    def _within_ball(self, place: int, box: Box) -> Box:
        """For L2, the box by the length of each row, where that is the smaller one."""
        squares, radius, node = self.squares[place], self.region.radius, self.graph.nodes[place]
        if squares is None or radius is None:
            self.middles.append(None)
            return box
        before = self.middles[node.inputs[0]]
        assert node.layer is not None
        assert before is not None
        middle = node.layer.over(before)  # one point, and its rounding
        self.middles.append(middle)
        return box.within(middle.widened(squares.sqrt() * radius * (1 + SURE)))


def intervals(graph: Operations, region: Region) -> Forward:
    """Interval bounds of every node."""
    found = Forward(graph, region)
    for _ in graph.nodes:
        found.add()
    return found


def feeds_curves(graph: Operations, place: int) -> bool:
    """Whether a node is read by a layer whose relaxation depends on its box."""
    return any(not is_affine(layer) for layer in graph.readers(place))
