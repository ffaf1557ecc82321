"""The device that an option names."""

import torch

from rood.errors import CapabilityError, first_line


def pick_device(name: str) -> torch.device:
    """The device called so; "auto" is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        raise CapabilityError(
            f"expected a device such as cpu or cuda, got {name!r}: {first_line(e)}"
        ) from e
    return device
