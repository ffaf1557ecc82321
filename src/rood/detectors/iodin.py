"""ODIN with a step of one pixel value."""

import torch

from rood.detectors._gradient import score_and_gradient
from rood.detectors.odin import ODIN
from rood.shapes import Images


class IODIN(ODIN):
    r"""s(x) = m(z(x') / T), x' = x + eta sign(g_j) e_j, j = argmax |g|, m as in `MSP`.

    g = grad_x log max softmax(z(x) / T): `ODIN`, but only the channel of the pixel that matters
    most is changed. Regmi, *Going Beyond Conventional OOD Detection*, 2024, arXiv:2411.10794. eta
    is in pixel units; x' is not clipped to [0, 1].
    """

    def stepped(self, x: Images) -> Images:
        """x'; its gradient treats the step as a constant."""
        _, gradient = score_and_gradient(self._margin, x)
        flat = gradient.flatten(1)
        if flat.shape[0] == 0:
            return x
        largest = flat.abs().argmax(dim=1, keepdim=True)
        step = torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest).sign())
        return x - self.eta * step.view_as(x)
