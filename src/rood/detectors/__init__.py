"""Detectors, one per file; `registry` finds them by file name, `rood.detectors.KNN` by class."""

from rood.detectors._together import fit_all, score_all
from rood.detectors.base import Detector, OutputDetector
from rood.registry import Registry

registry: Registry[Detector] = Registry(__name__, Detector)

__all__ = ["Detector", "OutputDetector", "fit_all", "registry", "score_all"]

__getattr__, __dir__ = registry.by_class_name, registry.public_names
