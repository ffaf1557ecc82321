"""How well scores tell ID from OOD images; every metric takes (inside=..., outside=...) scores."""

from typing import Any

from rood import _moved
from rood.metrics.intervals import Interval, share_of, summary, wilson
from rood.metrics.oscr import auroc_interval, ccr_at, oscr, oscr_interval
from rood.metrics.paired import auroc_difference
from rood.metrics.ranking import (
    METRICS,
    Curve,
    Floats,
    aupr_in,
    aupr_out,
    auroc,
    curve,
    detection_error,
    detection_error_at,
    false_alarm_at,
    fpr_at_tpr_in,
    fpr_at_tpr_out,
    missed_at,
    threshold_at_tpr,
)

__all__ = [
    "METRICS",
    "Curve",
    "Floats",
    "Interval",
    "aupr_in",
    "aupr_out",
    "auroc",
    "auroc_difference",
    "auroc_interval",
    "ccr_at",
    "curve",
    "detection_error",
    "detection_error_at",
    "false_alarm_at",
    "fpr_at_tpr_in",
    "fpr_at_tpr_out",
    "missed_at",
    "oscr",
    "oscr_interval",
    "share_of",
    "summary",
    "threshold_at_tpr",
    "wilson",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    return _moved.name(__name__, name)
