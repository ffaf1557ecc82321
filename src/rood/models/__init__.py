"""Classifiers seen from pixel space."""
