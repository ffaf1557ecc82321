"""Does a gradient reach the pixels?"""

from collections.abc import Iterator

import torch

from rood.attacks.base import value_and_gradient
from rood.detectors import Energy
from rood.errors import CapabilityError
from rood.evaluation.diagnosis.base import Diagnosis, NetworkCheck, Setup, Subject
from rood.goals import look_in

TRIED = 8  # images


class PixelGradient(NetworkCheck):
    """The gradient of the energy in the pixels: attacks follow gradients."""

    place = 13

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        x = subject.some.thin(TRIED).pixels().to(subject.model.mean)
        do = "attacks can only query it, so its robustness may be a lack of attack: see docs/flags"
        try:
            _, gradient = value_and_gradient(look_in(Energy(subject.model)), x)
        except CapabilityError as e:
            yield self.warn(str(e), do, subject.name)
            return
        if dead := int((gradient.flatten(1).abs().amax(dim=1) == 0).sum()):
            found = f"expected a gradient in the pixels, got zero for {dead} of {len(x)} images"
            yield self.warn(found, do, subject.name)
        else:
            size = float(torch.linalg.vector_norm(gradient.flatten(1), dim=1).median())
            yield self.ok(f"the gradient reaches the pixels (median norm {size:.2g})", subject.name)
