"""Libraries that import only beside some builds of torch."""

import importlib
import importlib.util

import torch

LIBRARIES = []


def imported(name):
    """The library, or why it does not import here.

    A CPU build of torch cannot load torchvision's compiled operators. Its networks and data sets
    use none of them, but its import needs two of their names.
    """
    if importlib.util.find_spec("torchvision") is None:
        return None, "torchvision is not installed: see `make peers`"
    if torch.version.cuda is None:
        operators = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                operators.define(f"{operator}(Tensor a, Tensor b, float c) -> Tensor")
        LIBRARIES.append(operators)  # they end with it
    try:
        return importlib.import_module(name), ""
    except Exception as e:
        return None, f"{name} does not import here: {type(e).__name__}"
