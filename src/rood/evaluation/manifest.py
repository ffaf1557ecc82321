"""What must be known to repeat an audit: versions, hardware, hashes."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import torch

from rood.version import __version__

LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "pillow")


def versions() -> dict[str, str]:
    """rood, Python and the libraries that numbers depend on."""
    found = {"rood": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "?"
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    """The device, how it computes, and the most memory that was in use so far."""
    facts: dict[str, Any] = {
        "device": str(device),
        "machine": platform.machine(),
        "system": platform.system(),
        "threads": torch.get_num_threads(),
        "tf32": torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32,
        "peak_memory_mb": peak_memory() // 2**20,
    }
    if device.type == "cuda":
        facts["name"] = torch.cuda.get_device_name(device)
        facts["peak_device_memory_mb"] = torch.cuda.max_memory_allocated(device) // 2**20
    return facts


def peak_memory() -> int:
    """Bytes of main memory that this process had in use at most; 0 where nobody counts."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else 1024 * most


@contextmanager
def full_precision() -> Iterator[None]:
    """float32 as it is, without TF32, and the same result every time, while the block runs."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = False, False, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
