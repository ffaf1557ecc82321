"""Fitting several detectors in one pass."""

import pytest
import torch

from rood.detectors import MSP, fit_all
from rood.detectors.base import OutputDetector
from rood.errors import InputError


class Foreign(OutputDetector):
    """Keeps what it learns in a plain attribute, as a model of another library does."""

    centre = None

    def start(self):
        self.parts = []

    def see(self, out, labels):
        self.parts.append(out.features)

    def finish(self):
        self.centre = torch.cat(self.parts).mean(dim=0)

    def score_outputs(self, out):
        return (out.features - self.centre).norm(dim=1)


def test_a_detector_that_declares_nothing_is_fitted_too(world):
    detector = Foreign(world.model).fit(world.train)
    with torch.no_grad():
        seen = torch.cat([world.model(x).features for x, _ in world.train])
    torch.testing.assert_close(detector.centre, seen.mean(dim=0))
    assert detector.score(world.inside).shape == (60,)
    with pytest.raises(InputError, match="expected training images"):
        detector.fit([])


def test_a_detector_that_learns_nothing_needs_no_images(world):
    fit_all([MSP(world.model)], [])
