"""Certificates: bounds of a score that no attack within a threat can pass."""

from rood.certify.bounding import METHODS, Certifier, Method, bounds
from rood.certify.sandwich import certified, radius
from rood.certify.smoothing import smoothed

__all__ = ["METHODS", "Certifier", "Method", "bounds", "certified", "radius", "smoothed"]
