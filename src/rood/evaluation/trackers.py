"""Results in experiment trackers: one metric per number, what was audited, and the files."""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rood._lazy import optional
from rood._offline import offline
from rood.errors import ResultsError, first_line
from rood.evaluation.gate import attacked
from rood.evaluation.rows import Row
from rood.registry import unknown
from rood.version import __version__

if TYPE_CHECKING:
    from rood.evaluation.store import Results

FILES = ("report.html", "rows.jsonl")
AT_ONCE = 1000  # metrics that MLflow takes in one call
Facts = dict[str, str]
Metrics = dict[str, float]


def tracker(name: str) -> Callable[["Results"], None]:
    """What logs a results folder to a tracker; its package is imported here, before any work."""
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    module, send = optional(name, extra=name), TRACKERS[name]

    def log(results: "Results") -> None:
        values, facts = metrics(results), _facts(results)
        files = [path for file in FILES if (path := results.folder / file).exists()]
        try:
            send(module, values, facts, files)
        except Exception as e:  # whatever a tracker or its server raises
            why = f"{type(e).__name__}: {first_line(e).rstrip('.')}"
            raise ResultsError(
                f"expected {name} to take the results, got {why}: "
                f"they are in {results.folder}; the same command again only logs them"
            ) from e

    return log


def metrics(results: "Results") -> Metrics:
    """Every number but those of the checks, such as auroc/NETWORK/DETECTOR/SET/ATTACK/both."""
    rows = results.rows
    worst = {"worst_auroc": float(results.worst())} if attacked(rows) else {}
    return worst | {_name(r): r.value for r in rows if not r.metric.startswith("flag_")}


def _name(row: Row) -> str:
    """Parts of which any tracker takes the letters, between slashes, which group the charts."""
    side = "" if row.side == "none" else row.side
    parts = (row.metric, row.model, row.detector, row.dataset, row.scenario, side)
    return "/".join(re.sub(r"[^\w.-]+", "_", p).strip(".") or "_" for p in parts if p)


def _facts(results: "Results") -> Facts:
    """What was audited and how, short enough for every tracker."""
    from rood.evaluation.store import Store

    manifest = Store(results.folder).manifest() or {}
    settings = manifest.get("settings", {})
    facts = {key: manifest.get(key) for key in ("command", "date")}
    facts |= {key: settings.get(key) for key in ("attack", "threats", "seed")}
    facts["networks"] = ", ".join(sorted({row.model for row in results.rows}))
    facts["folder"], facts["version"] = results.folder.resolve(), __version__
    return {f"rood.{k}": str(v)[:500] for k, v in facts.items() if v is not None}


def _to_mlflow(mlflow: Any, values: Metrics, facts: Facts, files: Iterable[Path]) -> None:
    """Into the run that is active, or one of its own."""
    own = mlflow.active_run() is None
    with mlflow.start_run(run_name="rood audit") if own else nullcontext():
        mlflow.set_tags(facts)
        rest = iter(values.items())
        while part := dict(islice(rest, AT_ONCE)):
            mlflow.log_metrics(part)
        for path in files:
            mlflow.log_artifact(str(path), "rood")


def _to_wandb(wandb: Any, values: Metrics, facts: Facts, files: Iterable[Path]) -> None:
    """Into the run that is active, or one of its own, which --offline keeps on this machine."""
    about = {"project": os.environ.get("WANDB_PROJECT", "rood"), "job_type": "audit"}
    mode = "offline" if offline() else None
    with nullcontext(wandb.run) if wandb.run else wandb.init(**about, mode=mode) as run:
        run.config.update(facts, allow_val_change=True)
        run.log(values)
        artifact = wandb.Artifact("rood-audit", type="audit")
        for path in files:
            artifact.add_file(str(path))
        run.log_artifact(artifact)


TRACKERS = {"mlflow": _to_mlflow, "wandb": _to_wandb}
