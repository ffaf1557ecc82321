"""Programs of torch.export (.pt2): the last linear layer is found in the graph.

torch.export.load evaluates text of the file: sizes as sympy expressions, operators by their dotted
names, containers by the modules they are from. So a file needs trust. What is known to be abused is
refused in a trusted one too.
"""

import ast
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._sympy import functions

from rood._files import check_unpacked, opened
from rood._parsing import json_of
from rood.errors import CheckpointError, InputError, expect, expect_trust
from rood.models.model import logits_of
from rood.models.sources.base import ForeignNetwork
from rood.shapes import Images

# what the size of a tensor is written with: sympy's own, and those that torch adds
_SYMPY = (
    "Abs|Add|And|Dummy|Equality|Eq|Ne|Unequality|Float|GreaterThan|Ge|Gt|Integer|LessThan|Le|Lt|"
    "Max|Min|Mod|Mul|Not|Or|Piecewise|Pow|Rational|StrictGreaterThan|StrictLessThan|Symbol|"
    "ExprCondPair|Tuple|ceiling|floor|log|exp|sqrt"
)
_ARITHMETIC = {*_SYMPY.split("|"), *(n for n in vars(functions) if n[0].isupper())}
_PARTS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.keyword, ast.Call, ast.BinOp),
    *(ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop),
)
_WORD = re.compile(r"[\w.+-]*", re.ASCII)


def find(path: str, weights: str | Path | None, trust: bool) -> ForeignNetwork:
    """The program in a .pt2 file. It is code: run it only if you trust its origin."""
    if weights is not None:
        raise InputError(f"expected no weights beside {path!r}, which has its own")
    _refuse_pickles(path)
    expect_trust(trust, path, "torch evaluates text of a .pt2 file while it loads it")
    try:
        program = torch.export.load(path)
    except Exception as e:  # a damaged archive may raise anything
        raise CheckpointError(
            f"{path!r} is damaged or from another torch: {type(e).__name__}"
        ) from e
    whole = program.module()
    assert isinstance(whole, fx.GraphModule)
    places = [n for n in whole.graph.nodes if n.op == "placeholder"]
    if len(places) != 1 or len(places[0].meta["val"].shape) != 4:
        raise InputError(f"expected a program of one batch of images in {path!r}")
    batch, channels, *size = places[0].meta["val"].shape
    fixed = batch if isinstance(batch, int) else None
    what = f"a program for any number of images in {path!r}"
    how = "export it with a dynamic first dimension"
    expect(fixed in (None, 1), what, f"one for {fixed}", do=how)
    notes = () if fixed is None else ("exported for one image at a time: slow",)
    known = all(isinstance(n, int) for n in (channels, *size))
    shape = (int(channels), int(size[0]), int(size[1])) if known else None
    return ForeignNetwork(net=_opened(whole, fixed), name=path, shape=shape, notes=notes)


class _Program(nn.Module):
    """A graph, and its last linear layer as a module."""

    def __init__(self, body: nn.Module, head: nn.Module, at_once: int | None) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.at_once = at_once

    def forward(self, x: Images) -> Tensor:
        if self.at_once is None or len(x) == 0:
            return self.head(self.body(x))
        return self.head(torch.cat([logits_of(self.body(one)) for one in x.split(self.at_once)]))


def _opened(whole: fx.GraphModule, at_once: int | None) -> nn.Module:
    """The network cut before its last linear layer, if that layer returns the logits."""
    graph = whole.graph
    end = next(n for n in graph.nodes if n.op == "output")
    returned = end.args[0]
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    last = results[0]
    head: nn.Module = nn.Identity()
    if isinstance(last, fx.Node) and last.target is torch.ops.aten.linear.default:
        features, *names = last.args
        values = [_value(whole, n) for n in names if isinstance(n, fx.Node)]
        head, last = _linear(values), features
    end.args = (last,)
    graph.set_codegen(fx.graph.CodeGen())  # one argument, one tensor returned
    graph.eliminate_dead_code()
    # a new module: the program's own refuses eval()
    return _Program(fx.GraphModule(whole, graph), head, at_once)


def _value(module: nn.Module, node: fx.Node) -> Tensor:
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def _linear(values: list[Tensor]) -> nn.Linear:
    weight = values[0].detach()
    head = nn.Linear(weight.shape[1], weight.shape[0], bias=len(values) > 1, dtype=weight.dtype)
    head.load_state_dict(dict(zip(("weight", "bias"), (v.detach() for v in values), strict=False)))
    return head


def _refuse_pickles(path: str) -> None:
    """Refuse files with pickled parts, which torch.export.load would unpickle."""
    try:
        with opened(Path(path)) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            check_unpacked(archive)
            parts = {n.partition("/")[2]: archive.read(n) for n in names}
        configs = [json_of(v) for n, v in parts.items() if n.endswith("_config.json")]
        pickled = any(p.get("use_pickle") for c in configs for p in c.get("config", {}).values())
    except FileNotFoundError as e:
        raise CheckpointError(f"expected a program of torch.export at {path!r}, found none") from e
    except Exception as e:  # zipfile and zlib raise errors of many kinds; JSON of another form
        raise CheckpointError(f"{path!r} is damaged or not a file of torch.export.save") from e
    if len(set(names)) < len(names) or "archive_format" not in parts or pickled:
        raise CheckpointError(
            f"{path!r} contains more than tensors and a graph, which rood never unpickles: "
            "save it again with torch.export.save, without custom objects"
        )
    _refuse_expressions(path, parts)
    for name, content in parts.items():
        if name.endswith(".pt"):
            try:
                torch.load(io.BytesIO(content), weights_only=True)
            except Exception as e:
                raise CheckpointError(f"{path!r} has {name!r}, which is more than tensors") from e


def _refuse_expressions(path: str, parts: dict[str, bytes]) -> None:
    """Refuse text in place of a size that is more than arithmetic, before torch evaluates it."""
    try:
        graphs = [json_of(v) for n, v in parts.items() if n.startswith("models/")]
    except ValueError as e:
        raise CheckpointError(f"{path!r} is damaged or not a file of torch.export.save") from e
    for text in _expressions(graphs):
        if not _is_arithmetic(text):
            raise CheckpointError(
                f"{path!r} has {str(text)[:60]!r} in place of the size of a tensor, which torch "
                "would run as code: save it again with torch.export.save"
            )


def _expressions(graphs: list[Any]) -> Iterator[Any]:
    todo = list(graphs)  # not by recursion, which a nested file would exhaust
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            if "expr_str" in value:
                yield value["expr_str"]
            todo += value.values()
        elif isinstance(value, list):
            todo += value


def _is_arithmetic(text: Any) -> bool:
    """Numbers, names and calls of functions that sizes are written with; True for None."""
    try:
        tree = list(ast.walk(ast.parse(str(text), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = [n.func for n in tree if isinstance(n, ast.Call)]
    if not all(isinstance(n, _PARTS) for n in tree):
        return False
    if not all(isinstance(f, ast.Name) and f.id in _ARITHMETIC for f in called):
        return False
    return all(_WORD.fullmatch(str(n.value)) for n in tree if isinstance(n, ast.Constant))
