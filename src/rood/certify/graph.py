"""A network as the list of the operations that it carries out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rood.certify.layers import by_name
from rood.certify.layers.base import Affine, Call, Operation, Shape, Tracked
from rood.certify.layers.rescale import Rescale
from rood.errors import CapabilityError
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images

# functions that give back the same numbers; dropout does in eval mode
SAME = {"clone", "contiguous", "detach", "dropout", "dropout2d", "to", "float", "double", "type"}
TRIED = 2  # images on which the operations are compared with the network
TOLERANCE = 1e-4  # of the outputs, for networks in float32


@dataclass(frozen=True)
class Node:
    """One operation, and the nodes whose results it takes; the first node is the image."""

    layer: Operation | None
    inputs: tuple[int, ...]
    shape: Shape  # of the result, without the batch
    where: str  # the module


@dataclass(frozen=True)
class Operations:
    """The operations of a network in order."""

    nodes: tuple[Node, ...]
    logits: int
    features: int
    head: int | None  # of the scalar head

    def values(self, x: Images) -> list[Tensor]:
        """The result of every operation."""
        found: list[Tensor] = []
        for node in self.nodes:
            inputs = (found[i] for i in node.inputs)
            found.append(x if node.layer is None else node.layer.value(*inputs))
        return found

    def readers(self, place: int) -> list[Operation]:
        """The operations that take the result of a node."""
        return [n.layer for n in self.nodes if place in n.inputs and n.layer is not None]


def trace(model: Model, shape: Shape) -> Operations:
    """The operations of a network on images of a shape, found by running it once.

    The constants of the graph are the network's own tensors, so that gradients reach its weights.
    What depends on the numbers of an image, beyond the layers that are known, is not covered:
    then `CapabilityError` names it. While a CUDA graph is recorded, nothing may be copied from or
    to the host: then the operations are not compared with the network again.
    """
    like, recording = model.mean, _recording(model.mean)
    if recording:
        x = like.new_zeros(TRIED, *shape)
    else:
        x = torch.rand(TRIED, *shape, generator=generator(0, "trace")).to(like)
        model.confirm(x)
    tape = _Tape(x)
    with _named(model.net, tape), tape:
        out = model(x)
    if tape.problem is not None:
        raise tape.problem
    graph = Operations(
        tuple(tape.nodes),
        tape.place(out.logits),
        tape.place(out.features),
        None if out.head is None else tape.place(out.head),
    )
    graph = _folded(graph)
    if not recording:
        _check(graph, x, [out.logits, out.features, *([] if out.head is None else [out.head])])
    return graph


def _recording(like: Tensor) -> bool:
    return like.is_cuda and torch.cuda.is_current_stream_capturing()


def _folded(graph: Operations) -> Operations:
    """The graph with batch norm as a part of the layer before it, where nothing else reads that."""
    outputs = {graph.logits, graph.features, graph.head}
    nodes: list[Node] = []
    places: dict[int, int] = {}
    for at, node in enumerate(graph.nodes):
        before = node.inputs[0] if len(node.inputs) == 1 else 0
        if node.inputs and before not in outputs and len(graph.readers(before)) == 1:
            last = nodes[places[before]]
            if (layer := _joined(last.layer, node.layer)) is not None:
                nodes[places[before]] = Node(layer, last.inputs, node.shape, last.where)
                places[at] = places[before]
                continue
        places[at] = len(nodes)
        inputs = tuple(places[i] for i in node.inputs)
        nodes.append(Node(node.layer, inputs, node.shape, node.where))
    head = None if graph.head is None else places[graph.head]
    return Operations(tuple(nodes), places[graph.logits], places[graph.features], head)


def _joined(first: Operation | None, second: Operation | None) -> Operation | None:
    """A layer and a `Rescale` behind it as one; None where that is not possible."""
    if not isinstance(first, Affine) or not isinstance(second, Rescale):
        return None
    given = second.by_channel
    return None if given is None else first.followed(*given)


def _check(graph: Operations, x: Images, wanted: Sequence[Tensor]) -> None:
    """Whether the graph computes what the network does."""
    with torch.no_grad():
        found = graph.values(x)
    places = [p for p in (graph.logits, graph.features, graph.head) if p is not None]
    for place, want in zip(places, wanted, strict=True):
        off = (found[place].reshape(want.shape) - want).abs().max().item()
        if not off <= TOLERANCE * (1 + want.abs().max().item()):
            raise CapabilityError(
                f"expected a network whose operations give its outputs, got others that differ by "
                f"{off:.3g}: does it change maps in place, or read the batch?"
            )


class _Tape(TorchFunctionMode):
    """Writes down what is done with an image."""

    def __init__(self, image: Tensor) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.layers: list[str] = []  # the modules that run, the outermost first
        self.problem: CapabilityError | None = None  # the first; torch hides errors of operators
        self._places: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that no other tensor gets the id of one of these
        self._note(image, Node(None, (), tuple(image.shape[1:]), "the image"))

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        shapes = {k: tuple(t.shape[1:]) for k, t in self._tracked([*args, *kwargs.values()])}
        result = function(*args, **kwargs)
        if shapes and isinstance(result, Tensor):
            try:
                self._read(function.__name__, args, kwargs, shapes, result)
            except CapabilityError as e:
                self.problem = self.problem or e
        return result

    def place(self, result: Tensor) -> int:
        """The node that computed a tensor."""
        if (found := self._places.get(id(result))) is None:
            raise CapabilityError(
                "expected outputs that are computed from the image, got others: is there a copy "
                "on the way?"
            )
        return found

    def _tracked(self, values: Sequence[Any]) -> Iterator[tuple[int, Tensor]]:
        for value in values:
            if isinstance(value, Tensor) and id(value) in self._places:
                yield self._places[id(value)], value
            elif isinstance(value, list | tuple):
                yield from self._tracked(value)

    def _read(
        self,
        function: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        shapes: dict[int, Shape],
        result: Tensor,
    ) -> None:
        name, where = function.strip("_"), self.layers[-1] if self.layers else "the network"
        given = [self._marked(v, shapes) for v in args]
        named = {k: self._marked(v, shapes) for k, v in kwargs.items()}
        sources = tuple(_sources([*given, *named.values()]))
        call = Call(name, given, named, sources, tuple(result.shape[1:]), where)
        given_up = name.startswith("dropout") and call.named("x", "p", "on", training=True)
        if result.ndim == 0 or len(result) != TRIED or (given_up and given_up.get("on")):
            raise call.refusal(f"{name} across the images of a batch, or at random")
        if name in SAME:
            self._same(result, sources[0].node)
        elif name not in by_name():
            raise call.refusal(name)
        elif (layer := by_name()[name].read(call)) is None:
            self._same(result, sources[0].node)
        else:
            inputs = tuple(s.node for s in sources)
            self._note(result, Node(layer, inputs, tuple(result.shape[1:]), where))

    def _marked(self, value: Any, shapes: dict[int, Shape]) -> Any:
        if isinstance(value, Tensor) and id(value) in self._places:
            place = self._places[id(value)]
            return Tracked(place, shapes[place])
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return [self._marked(v, shapes) for v in value] if _deep(value) else value
        return value

    def _note(self, result: Tensor, node: Node) -> None:
        self._same(result, len(self.nodes))
        self.nodes.append(node)

    def _same(self, result: Tensor, place: int) -> None:
        self._places[id(result)] = place
        self._alive.append(result)


def _deep(value: Sequence[Any]) -> bool:
    return any(isinstance(v, Tensor) for v in value)


def _sources(values: Sequence[Any]) -> Iterator[Tracked]:
    for value in values:
        if isinstance(value, Tracked):
            yield value
        elif isinstance(value, list):
            yield from _sources(value)


@contextmanager
def _named(net: nn.Module, tape: _Tape) -> Iterator[None]:
    """Tell the tape which module runs."""
    handles = []
    for name, module in net.named_modules():
        label = f"{name or 'the network'} ({type(module).__name__})"
        enter = lambda _, __, label=label: tape.layers.append(label)
        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(lambda *_: void(tape.layers.pop())))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def void(_: object) -> None:
    """A forward hook that returns something replaces the output."""


def is_affine(layer: Operation | None) -> bool:
    """Whether a node is its own relaxation."""
    return layer is None or isinstance(layer, Affine)
