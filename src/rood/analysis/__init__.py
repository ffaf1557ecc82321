"""Analyses beyond an audit: smallest budgets, trajectories, matched codes, rectified scores."""

from rood._lazy import submodules

__getattr__, __dir__ = submodules(__name__, __path__)
