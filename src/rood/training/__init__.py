"""Training: objectives, one visible loop, and the recipes of the networks that are shipped."""

from rood._lazy import submodules

__getattr__, __dir__ = submodules(__name__, __path__)
