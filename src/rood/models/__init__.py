"""Networks that take pixels in [0, 1]: wrapped, loaded by name, from checkpoints and hubs."""

from rood._lazy import submodules

__getattr__, __dir__ = submodules(__name__, __path__)
