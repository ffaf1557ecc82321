"""How well scores tell ID from OOD images; every metric takes (inside=..., outside=...) scores."""

from typing import Any

from rood import _moved
from rood.metrics.ranking import (
    METRICS,
    Curve,
    Floats,
    Interval,
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
    summary,
    threshold_at_tpr,
    wilson,
)

__all__ = [
    "METRICS",
    "Curve",
    "Floats",
    "Interval",
    "aupr_in",
    "aupr_out",
    "auroc",
    "curve",
    "detection_error",
    "detection_error_at",
    "false_alarm_at",
    "fpr_at_tpr_in",
    "fpr_at_tpr_out",
    "missed_at",
    "summary",
    "threshold_at_tpr",
    "wilson",
]


def __getattr__(name: str) -> Any:
    return _moved.name(__name__, name)
