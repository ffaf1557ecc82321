"""Common corruptions of images, each at five severities: noise, blur, weather, compression."""

from rood.corruptions.base import corrupt, names

__all__ = ["corrupt", "names"]


def __dir__() -> list[str]:
    return __all__
