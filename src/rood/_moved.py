"""Import paths of rood 0.1 that still work, with a DeprecationWarning that names the new path.

A module that moves gets one line in `MOVED`; the submodules of a package move with it. The finder
stands first on `sys.meta_path`: after "rood.guarding" has become `rood.guard`, Python itself would
find "rood.guarding.guard" there and load that file a second time.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "rood.bridges": "rood.interop",
    "rood.catalogue": "rood.cli.catalogue",
    "rood.citations": "rood.registry",
    "rood.contamination": "rood.data.contamination",
    "rood.covariance": "rood.numerics.covariance",
    "rood.crafting": "rood.evaluation.craft",
    "rood.evaluation.audit": "rood.api",
    "rood.evaluation.crafted": "rood.evaluation.crafting",
    "rood.evaluation.examination": "rood.evaluation.probes",
    "rood.evaluation.folder": "rood.evaluation.store",
    "rood.evaluation.memory": "rood.evaluation.batching",
    "rood.evaluation.sanity": "rood.evaluation.checks",
    "rood.evaluation.tables": "rood.evaluation.rows",
    "rood.evaluation.time_budget": "rood.evaluation.time_limit",
    "rood.evaluation.work": "rood.evaluation.tasks",
    "rood.files": "rood._files",
    "rood.guarding": "rood.guard",
    "rood.matching": "rood.analysis.matching",
    "rood.offline": "rood._offline",
    "rood.resampling": "rood.metrics.resampling",
    "rood.rounding": "rood.threat",
    "rood.softmax": "rood.numerics.softmax",
    "rood.streaming": "rood.numerics.streaming",
}
PAPERS = ("rood.reproduce", "rood.paper_goals", "rood.cli.reproduce")  # now the package rood_papers


def new_path(path: str) -> str | None:
    """Where the module `path` of rood 0.1 is now; None if it never moved."""
    for old, new in MOVED.items():
        if path == old or path.startswith(old + "."):
            return new + path.removeprefix(old)
    return None


class _Alias(Loader):
    """Puts the module of the new path in place of the old one."""

    def __init__(self, new: str) -> None:
        self.new = new

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        sys.modules[old] = importlib.import_module(self.new)
        message = f"{old} is now {self.new}: import that, the old path will be removed in rood 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("rood."):
            return None
        if fullname.startswith(PAPERS):
            raise ModuleNotFoundError(
                f"{fullname} is now part of the package rood_papers: "
                "install rood-papers (from a checkout: pip install ./papers) and import that",
                name=fullname,
            )
        new = new_path(fullname)
        return ModuleSpec(fullname, _Alias(new), is_package=True) if new else None


def install() -> None:
    """Make the old paths importable in this process."""
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
