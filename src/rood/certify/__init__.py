"""Certificates: bounds of a score that no attack within a threat can pass."""

from rood.certify.bounding import METHODS, Certifier, Method, bounds

__all__ = ["METHODS", "Certifier", "Method", "bounds"]
