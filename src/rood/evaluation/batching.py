"""Batch sizes: as many images as memory holds, and fewer where it runs out."""

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

from rood.attacks.base import value_and_gradient
from rood.data.base import at_once
from rood.detectors.base import Detector
from rood.errors import CapabilityError, first_line
from rood.goals import look_in
from rood.shapes import Images

T = TypeVar("T")

MOST = 1024  # beyond, a GPU gains nothing, and a cluster gets too few tasks
PROBE = 16  # images on which memory is measured
SPARE = 0.5  # share of the free memory to use: an attack peaks higher than one gradient

# messages of allocators that have no error class
SAID = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


def in_parts(start: int, stop: int, size: int, work: Callable[[int, int], T]) -> Iterator[T]:
    """work(first, end) from start to stop, `size` at once; half as many where memory runs out."""
    while start < stop:
        end = min(start + size, stop)
        try:
            found = work(start, end)
        except (MemoryError, RuntimeError) as e:
            if not out_of_memory(e):
                raise
            if end - start == 1:
                raise CapabilityError(
                    f"expected memory for one image at a time, ran out of it ({first_line(e)}): "
                    "take a smaller network or another device"
                ) from e
            size = (end - start) // 2
        else:
            yield found
            start = end
            continue
        _free()  # not sooner: a handled error keeps every tensor alive


def out_of_memory(e: BaseException) -> bool:
    """Whether an error says that an allocation failed, on a GPU or on the host."""
    if isinstance(e, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(e, RuntimeError) and any(words in str(e) for words in SAID)


def images_at_once(detectors: Iterable[Detector], x: Images) -> int:
    """The batch size that fits into free GPU memory for the most expensive detector.

    On a CPU: the size that is quickest.
    """
    if not x.is_cuda:
        c, h, w = x.shape[1:]
        return at_once((c, h, w))
    x = x[torch.arange(PROBE, device=x.device) % len(x)]
    try:
        each = max(_bytes_an_image(d, x) for d in detectors)
    except RuntimeError as e:
        if not out_of_memory(e):
            raise
        _free()
        return PROBE
    free, _ = torch.cuda.mem_get_info(x.device)
    kept = torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
    return fitting(free + kept, each)


def fitting(free: int, each: float) -> int:
    """Images of `each` bytes that fit into free memory, as a power of two."""
    room = SPARE * free / max(each, 1.0)
    return min(MOST, 2 ** int(math.log2(max(room, 1.0))))


def _bytes_an_image(detector: Detector, x: Images) -> float:
    """What one more image adds to the memory peak of a value and gradient."""
    half = len(x) // 2
    _peak(detector, x)  # the first call also allocates what is kept
    return (_peak(detector, x) - _peak(detector, x[:half])) / (len(x) - half)


def _peak(detector: Detector, x: Images) -> int:
    torch.cuda.reset_peak_memory_stats(x.device)
    before = torch.cuda.memory_allocated(x.device)
    try:
        value_and_gradient(look_in(detector), x)
    except CapabilityError:  # it has no gradient
        with torch.no_grad():
            detector.score(x)
    return torch.cuda.max_memory_allocated(x.device) - before


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
