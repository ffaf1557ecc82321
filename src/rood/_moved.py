"""Import paths of rood 0.1 that still work, with a DeprecationWarning that names the new path.

A module that moves gets one line in `MOVED`; the submodules of a package move with it. A name that
went elsewhere than its module gets one in `NAMES`. The finder stands first on
`sys.meta_path`: after "rood.guarding" has become `rood.guard`, Python itself would find
"rood.guarding.guard" there and load that file a second time.
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
    "rood.report.flags": "rood.report.outcomes",
    "rood.report.histograms": "rood.report.figures",
    "rood.report.read": "rood.evaluation.store",
    "rood.report.standing": "rood.report.outcomes",
    "rood.report.verdict": "rood.report.findings",
    "rood.resampling": "rood.metrics.resampling",
    "rood.rounding": "rood.threat",
    "rood.softmax": "rood.numerics.softmax",
    "rood.streaming": "rood.numerics.streaming",
    "rood.testing.fitting": "rood.testing.detectors",
    "rood.testing.gradients": "rood.testing.detectors",
    "rood.training.average": "rood.training.ema",
    "rood.training.recipes": "rood.training.job",
    "rood.training.standing": "rood.training.state",
}
# now in the package rood_papers
PAPERS = ("rood.reproduce", "rood.paper_goals", "rood.cli.reproduce")

NAMES = {  # single names that moved, some with another name: the module, "module:name"
    "rood.analysis.dimensions.coverage": "rood_papers.liang.coverage",
    "rood.analysis.dimensions.stirling": "rood_papers.liang.coverage",
    "rood.evaluation.folder.Folder": "rood.evaluation.store:Store",
    "rood.evaluation.results.Side": "rood.evaluation.checks.base",
    "rood.evaluation.results.Verdict": "rood.evaluation.checks.base",
    "rood.evaluation.sanity.Finding": "rood.evaluation.checks.base:Flag",
    "rood.evaluation.unit.AttackUnit": "rood.evaluation.tasks:SetAttack",
    "rood.evaluation.work.Work": "rood.evaluation.tasks:Task",
    "rood.metrics.aloe_auroc": "rood_papers.presets",
    "rood.metrics.mape": "rood.analysis.matching",
    "rood.models.adapt.Foreign": "rood.models.sources.base:ForeignNetwork",
    "rood.models.sources.KINDS": "rood.models.load",
    "rood.models.sources.find": "rood.models.load:find_network",
    "rood.models.sources.is_function": "rood.models.load",
    "rood.models.sources.knows_itself": "rood.models.load:has_card",
    "rood.models.sources.load": "rood.models.load:load_network",
    "rood.report.read.Folder": "rood.evaluation.store:Contents",
    "rood.report.read.Scores": "rood.evaluation.store:SavedScores",
    "rood.training.average.Average": "rood.training.ema:EMA",
    "rood.training.recipes.get": "rood.training.recipe",
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
    home, _, new = NAMES[old].partition(":")
    message = f"{old} is now {home}.{new or attribute}: import it from there"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(home), new or attribute)


def module(old: str) -> ModuleType:
    """The module `old` of rood 0.1, from where it is now; for the `__getattr__` of a package."""
    with warnings.catch_warnings():  # which would name the line below, not the caller's
        warnings.simplefilter("ignore", DeprecationWarning)
        found = importlib.import_module(old)
    warnings.warn(_sentence(old), DeprecationWarning, stacklevel=3)
    return found


def _sentence(old: str) -> str:
    return f"{old} is now {new_path(old)}: import that, the old path will be removed in rood 0.3"


def without_removed(tree: Any) -> Any:
    """Settings from a file of rood 0.1, without options that are gone, where these were unused."""
    if not isinstance(tree, dict):
        return [without_removed(v) for v in tree] if isinstance(tree, list) else tree
    gone = REMOVED.get(str(tree.get("class")), {})
    kept = {k: v for k, v in tree.items() if k not in gone or v != gone[k]}
    return {k: without_removed(v) for k, v in kept.items()}


def scattered(old: str) -> bool:
    """Whether some names of this module of rood 0.1 are not where the others are."""
    return any(path.rpartition(".")[0] == old for path in NAMES)


class _Scattered(ModuleType):
    """A module of rood 0.1 whose names are in several modules now."""

    def __init__(self, old: str, new: ModuleType) -> None:
        super().__init__(old, new.__doc__)
        self._new = new

    def __getattr__(self, attribute: str) -> Any:
        if f"{self.__name__}.{attribute}" in NAMES or not hasattr(self._new, attribute):
            return name(self.__name__, attribute)
        return getattr(self._new, attribute)


class _Alias(Loader):
    """Puts the module of the new path in place of the old one."""

    def __init__(self, new: str) -> None:
        self.new = new

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, importlib.import_module(self.new)
        sys.modules[old] = _Scattered(old, new) if scattered(old) else new
        warnings.warn(_sentence(old), DeprecationWarning, stacklevel=2)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("rood."):
            return None
        if any(f"{fullname}.".startswith(f"{path}.") for path in PAPERS):
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
