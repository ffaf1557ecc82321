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
from typing import Any

MOVED = {
    "rood.bridges": "rood.interop",
    "rood.catalogue": "rood.cli.list",
    "rood.citations": "rood.registry",
    "rood.cli.listing": "rood.cli.list",
    "rood.cli.lists": "rood.cli.options",
    "rood.contamination": "rood.data.contamination",
    "rood.covariance": "rood.numerics.covariance",
    "rood.crafting": "rood.evaluation.crafting",
    "rood.evaluation.account": "rood.evaluation.manifest",
    "rood.evaluation.audit": "rood.api",
    "rood.evaluation.crafted": "rood.evaluation.crafting",
    "rood.evaluation.engines.local": "rood.evaluation.engines",
    "rood.evaluation.examination": "rood.evaluation.probes",
    "rood.evaluation.folder": "rood.evaluation.store",
    "rood.evaluation.memory": "rood.evaluation.batching",
    "rood.evaluation.meter": "rood.evaluation.tasks",
    "rood.evaluation.networks": "rood.evaluation.prepare",
    "rood.evaluation.results": "rood.evaluation.store",
    "rood.evaluation.sanity": "rood.evaluation.checks",
    "rood.evaluation.scores_table": "rood.evaluation.crafting",
    "rood.evaluation.serving": "rood.evaluation.prepare",
    "rood.evaluation.shelf": "rood.evaluation.run",
    "rood.evaluation.tables": "rood.evaluation.rows",
    "rood.evaluation.time_budget": "rood.evaluation.time_limit",
    "rood.evaluation.unit": "rood.evaluation.tasks",
    "rood.evaluation.work": "rood.evaluation.tasks",
    "rood.files": "rood._files",
    "rood.guarding": "rood.guard",
    "rood.guarding.folder": "rood.guard.disk",
    "rood.guarding.judge": "rood.guard.guard",
    "rood.guarding.rebuild": "rood.guard.disk",
    "rood.matching": "rood.analysis.matching",
    "rood.models.adapt": "rood.models.sources.base",
    "rood.models.clip": "rood.models.sources.clip",
    "rood.models.logits_only": "rood.models.wrap",
    "rood.offline": "rood._offline",
    "rood.report.embed": "rood.report.templating",
    "rood.report.flags": "rood.report.findings",
    "rood.report.histograms": "rood.report.figures",
    "rood.report.read": "rood.evaluation.store",
    "rood.report.standing": "rood.report.findings",
    "rood.report.verdict": "rood.report.findings",
    "rood.resampling": "rood.metrics.resampling",
    "rood.rounding": "rood.threat",
    "rood.softmax": "rood.numerics.softmax",
    "rood.streaming": "rood.numerics.streaming",
    "rood.training.recipes": "rood.training.recipe",
}
PAPERS = ("rood.reproduce", "rood.paper_goals", "rood.cli.reproduce")  # now the package rood_papers

NAMES = {  # single functions that moved
    "rood.metrics.aloe_auroc": "rood_papers.presets",
    "rood.metrics.mape": "rood.analysis.matching",
}
REMOVED: dict[
    str, dict[str, Any]
] = {  # options that classes had in 0.1 and that files may name, with their defaults
    "Gram": {"bounds": "predicted", "scaled": True, "openood_slip": False},
    "LayeredMahalanobis": {"eta_unit": "pixel"},
    "PGD": {"truncate": False},
}


def new_path(path: str) -> str | None:
    """Where the module `path` of rood 0.1 is now; None if it never moved."""
    parts = path.split(".")
    for n in range(len(parts), 1, -1):  # the longest prefix that moved
        if new := MOVED.get(".".join(parts[:n])):
            return ".".join([new, *parts[n:]])
    return None


def name(module: str, attribute: str) -> Any:
    """What `module.attribute` was in rood 0.1, from where it is now; for a module's __getattr__."""
    old = f"{module}.{attribute}"
    if old not in NAMES:
        raise AttributeError(f"module {module!r} has no attribute {attribute!r}")
    message = f"{old} is now {NAMES[old]}.{attribute}: import it from there"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(NAMES[old]), attribute)


def without_removed(tree: Any) -> Any:
    """Settings from a file of rood 0.1, without options that are gone, where these were unused."""
    if not isinstance(tree, dict):
        return [without_removed(v) for v in tree] if isinstance(tree, list) else tree
    gone = REMOVED.get(str(tree.get("class")), {})
    kept = {k: v for k, v in tree.items() if k not in gone or v != gone[k]}
    return {k: without_removed(v) for k, v in kept.items()}


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
