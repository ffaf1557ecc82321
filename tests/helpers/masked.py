"""Seven defences that hide the gradient of a score and protect nothing, and the score they hide."""

from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from rood.data import load
from rood.detectors.base import Detector, OutputDetector
from rood.detectors.msp import MSP
from rood.numerics.softmax import margin


class Saturated(OutputDetector):
    """The probability of sharp logits: in float32 it is 1 for most images."""

    def score_outputs(self, out):
        return 1 - (50 * out.logits).softmax(dim=1).amax(dim=1)


class SignCut(OutputDetector):
    """The size of the score without its gradient, times its sign, which has none."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return s.abs().detach() * s.sign()


class Quantised(OutputDetector):
    """The score in whole units of half a logit."""

    def score_outputs(self, out):
        return (2 * margin(out.logits)).round() / 2


class NoiseLayer(Detector):
    """Noise on the pixels, from the global generator, as a user's layer would draw it."""

    stochastic = True

    def score_images(self, x):
        return margin(self.model(x + 0.1 * torch.randn_like(x)).logits)


class Thermometer(Detector):
    """Each pixel as the share of 16 levels that it exceeds."""

    def score_images(self, x):
        levels = (torch.arange(16, dtype=x.dtype, device=x.device) + 0.5) / 16
        code = (x[..., None] > levels).float()  # (b, c, h, w, 16)
        return margin(self.model(code.mean(dim=-1)).logits)


class Boxed(OutputDetector):
    """How far above or below the box the score is in which nine of ten training images lie."""

    low_: Float[Tensor, ""]
    high_: Float[Tensor, ""]

    def start(self):
        self._seen = []

    def see(self, out, labels):
        self._seen.append(margin(out.logits).detach())

    def finish(self):
        self.low_, self.high_ = torch.cat(self._seen).quantile(torch.tensor([0.05, 0.95])).unbind()

    def score_outputs(self, out):
        s = margin(out.logits)
        return (s - self.high_).relu() - (self.low_ - s).relu()


class BatchNormalised(OutputDetector):
    """The score among those of the images it came with: their sum is 0 whatever they are."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return (s - s.mean()) / s.std()


MASKS = {
    "saturated": Saturated,
    "sign_cut": SignCut,
    "quantised": Quantised,
    "noise_layer": NoiseLayer,
    "thermometer": Thermometer,
    "boxed": Boxed,
    "batch_normalised": BatchNormalised,
}


def masks(model, fit_batches) -> dict[str, tuple[Detector, Detector]]:
    """Each defence by name, with the detector that it hides."""
    return {name: (mask(model).fit(fit_batches), MSP(model)) for name, mask in MASKS.items()}


def digits(n):
    """Batches to fit on, n other digits 0 to 5, and n digits 6 to 9."""
    inside, outside = load("digits:inside"), load("digits:near", limit=n)
    order = torch.randperm(len(inside), generator=torch.Generator().manual_seed(0))
    fit, test = inside.take(order[n : n + 500]), inside.take(order[:n])
    return fit.batches(250), test.pixels(), outside.pixels()


@contextmanager
def noise_of(seed):
    """What is drawn from the global generator here is the same each time, and leaves no trace."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
