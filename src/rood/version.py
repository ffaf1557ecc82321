"""The version, where nothing else is imported."""

__version__ = "0.2.0"
