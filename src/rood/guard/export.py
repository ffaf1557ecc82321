"""Export of the graph from pixels to logits, score and accept, to run without rood."""

import copy
import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rood._files import write_whole
from rood.detectors.base import Detector
from rood.detectors.complexity import Complexity
from rood.detectors.rankfeat import RankFeat
from rood.errors import CapabilityError, InputError, RoodError, first_line
from rood.evaluation.store import readable_errors
from rood.guard.guard import Guard, logits_and_score
from rood.shapes import Images
from rood.version import __version__

OUTPUTS = ("logits", "score", "accept")
KINDS = (".onnx", ".pt2")
OPSET = 18


def export(guard: Guard, path: Path) -> None:
    """Write the graph of a guard as .onnx or .pt2, by the suffix of the path."""
    check_name(path)
    kinds: dict[str, Callable[[Graph, Images, Guard], bytes]] = {".onnx": _onnx, ".pt2": _program}
    if reason := why_not(guard.detector, path.suffix):
        raise CapabilityError(f"{type(guard.detector).__name__} cannot be exported: {reason}")
    graph = Graph(copy.deepcopy(guard.detector).cpu().eval(), guard.threshold)
    # two images: a batch size of one would be exported as a constant
    x = torch.zeros(2, *guard.shape, dtype=graph.detector.model.mean.dtype)
    with torch.no_grad():
        graph(x)  # the first pass chooses head and stages
        try:
            content = kinds[path.suffix](graph, x, guard)
        except RoodError:
            raise
        except Exception as e:  # a network's own code may raise anything
            what = f"{type(guard.detector).__name__} on {type(guard.model.net).__name__}"
            raise CapabilityError(f"{what} cannot be exported: {first_line(e).rstrip('.')}") from e
    with readable_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)


def check_name(path: Path) -> None:
    """Refuse a path to which no graph can be written."""
    if path.suffix not in KINDS:
        raise InputError(f"expected a name that ends in {' or '.join(KINDS)}, got {str(path)!r}")
    if os.path.isdir(path):
        raise InputError(f"expected a file to write the graph to, but {str(path)!r} is a folder")


def why_not(detector: Detector, kind: str = ".onnx") -> str | None:
    """Why this detector cannot be exported; None if it can."""
    parts = [m for m in detector.modules() if isinstance(m, Detector)]
    for part in parts:
        if part.cost()[1] > 0:
            return "it needs a gradient for every image, and the graph has only the forward pass"
    if any(isinstance(p, Complexity) for p in parts):
        return "it compresses every image as PNG, which a graph cannot"
    if kind == ".onnx" and any(isinstance(p, RankFeat) for p in parts):
        return "ONNX has no eigenvectors or singular vectors: use .pt2"
    return None


class Graph(nn.Module):
    """The exported module. It does not check the pixels."""

    def __init__(self, detector: Detector, threshold: float) -> None:
        super().__init__()
        self.detector = detector
        self.threshold = threshold

    def forward(self, images: Images) -> tuple[Tensor, Tensor, Tensor]:
        logits, score = logits_and_score(self.detector, images)
        return logits, score, score <= self.threshold


def _program(graph: Graph, x: Images, guard: Guard) -> bytes:
    batch = {"images": {0: torch.export.Dim("batch")}}
    content = io.BytesIO()
    with _quiet():
        program = torch.export.export(graph, (x,), dynamic_shapes=batch)
        torch.export.save(program, content, extra_files={"rood.json": _metadata(guard)})
    return content.getvalue()


def _onnx(graph: Graph, x: Images, guard: Guard) -> bytes:
    translations = _translations()
    with _quiet():
        program = torch.onnx.export(
            graph,
            (x,),
            input_names=["images"],
            output_names=list(OUTPUTS),
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
            custom_translation_table=translations,
        )
    assert program is not None
    program.model.metadata_props["rood"] = _metadata(guard)
    return program.model_proto.SerializeToString()


def _metadata(guard: Guard) -> str:
    """Metadata for users of the file."""
    return json.dumps(
        {
            "rood": __version__,
            "detector": type(guard.detector).__name__,
            "threshold": guard.threshold,
            "rate": guard.calibration.rate,
            "pixels": [0, 1],
            "shape": list(guard.shape),
            "classes": list(guard.classes),
        }
    )


def _translations() -> dict[Any, Callable[..., Any]]:
    """Operations that the exporter lacks, or onnxruntime lacks in float64."""
    try:
        op = importlib.import_module("onnxscript").opset18
    except ImportError as e:
        raise CapabilityError("needs onnx and onnxscript: pip install 'rood[onnx]'") from e

    def sort(x: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
        # TopK is stable: the lower index comes first among equals
        size = op.Reshape(op.Gather(op.Shape(x), op.Constant(value_int=dim)), [-1])
        return op.TopK(x, size, axis=dim, largest=descending, sorted=True)

    def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
        scale, one = op.CastLike(beta, x), op.CastLike(1.0, x)
        y = op.Mul(x, scale)
        t = op.Exp(op.Neg(op.Abs(y)))
        u = op.Add(one, t)
        # log(1 + t) exactly (Kahan): corrects the rounding of u
        exact = op.Div(op.Mul(op.Log(u), t), op.Sub(u, one))
        tail = op.Where(op.Equal(u, one), t, exact)
        return op.Div(op.Add(op.Relu(y), tail), scale)

    return {torch.ops.aten.sort.stable: sort, torch.ops.aten.softplus.default: softplus}


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of the exporter."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
