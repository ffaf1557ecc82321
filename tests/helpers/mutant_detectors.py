"""Detectors with one fault each, as they are seen in the wild."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.detectors.energy import Energy
from rood.detectors.knn import KNN
from rood.detectors.mahalanobis import Mahalanobis
from rood.detectors.msp import MSP
from rood.detectors.odin import ODIN
from rood.numerics.box import Box
from rood.numerics.streaming import Moments

DOC = "s(x) = something wrong. arXiv:0000.00000"


# detectors: the gradient


class FeaturesByData(Mahalanobis):
    __doc__ = DOC

    def score_outputs(self, out):
        return super().score_outputs(out._replace(features=out.features.data))


class OneTermDetached(Energy):
    __doc__ = DOC

    def score_outputs(self, out):
        return super().score_outputs(out) - out.features.detach().norm(dim=1)


class NumpyDetour(Energy):
    __doc__ = DOC

    def score_outputs(self, out):
        z = out.logits.detach().numpy()
        return torch.from_numpy(-np.log(np.exp(z).sum(axis=1)))


class Saturated(OutputDetector):
    __doc__ = DOC

    def score_outputs(self, out):
        return -out.logits.softmax(dim=1).amax(dim=1)


class SurrogateThatNeedsAutograd(ODIN):
    __doc__ = DOC

    def surrogates(self):
        def smooth(x):
            (g,) = torch.autograd.grad(self._margin(x).sum(), x, create_graph=True)
            return self._margin(x - self.eta * torch.tanh(g))

        return (smooth,)


class OtherValuesWithoutAutograd(Energy):
    __doc__ = DOC

    def score_images(self, x):
        s = super().score_images(x)
        return s if torch.is_grad_enabled() else s + 1


class GradientOfNoKind(MSP):
    __doc__ = DOC
    gradient = "mostly"


# detectors: the score


class SignTurned(MSP):
    __doc__ = DOC

    def score_outputs(self, out):
        return -super().score_outputs(out)


class KeepsAnAxis(MSP):
    __doc__ = DOC

    def score_outputs(self, out):
        return super().score_outputs(out)[:, None]


class ScoresInFloat64(MSP):
    __doc__ = DOC

    def score_images(self, x):
        return self.score_outputs(self.model(x)).double()


class NormalisedOverTheBatch(Energy):
    __doc__ = DOC

    def score_outputs(self, out):
        s = super().score_outputs(out)
        return (s - s.mean()) / (s.std() + 1e-6) if len(s) > 1 else s


class NeedsAnImage(Energy):
    __doc__ = DOC

    def score_outputs(self, out):
        return super().score_outputs(out._replace(logits=out.logits - out.logits.detach().max()))


class HiddenNoise(MSP):
    __doc__ = DOC

    def score_outputs(self, out):
        return super().score_outputs(out) + 1e-3 * torch.randn(len(out.logits))


class StateBetweenCalls(Energy):
    __doc__ = DOC
    _running = 0.0

    def score_outputs(self, out):
        s = super().score_outputs(out)
        self._running = 0.9 * self._running + 0.1 * float(s.detach().sum())
        return s - self._running


class OtherFormulaFromImages(Energy):
    __doc__ = DOC

    def score_images(self, x):
        return 2 * self.score_outputs(self.model(x))


# detectors: what is left behind


class LeftInTrainMode(Energy):
    __doc__ = DOC

    def score_images(self, x):
        self.model.train()
        return super().score_images(x)


class OverwritesItsInput(Energy):
    __doc__ = DOC

    def score_images(self, x):
        with torch.no_grad():
            x.mul_(0.5)
        return super().score_images(x)


class GradientsOnTheInput(Energy):
    __doc__ = DOC

    def score_images(self, x):
        x.requires_grad_()
        s = super().score_images(x)
        s.sum().backward(retain_graph=True)
        return s


class UnfreezesTheModel(Energy):
    __doc__ = DOC

    def score_images(self, x):
        self.model.requires_grad_(True)
        return super().score_images(x)


# detectors: fitting and form


class SkipsTheBaseChecks(Mahalanobis):
    __doc__ = DOC

    def score(self, x):
        return self.score_images(x)


class RefitAccumulates(KNN):
    __doc__ = DOC

    def start(self):
        super().start()
        if getattr(self, "_old", None) is not None:
            self._parts.append(self._old)

    def finish(self):
        super().finish()
        self._old = self.bank_


class LearntInAPlainAttribute(OutputDetector):
    __doc__ = DOC
    scale_: Float[Tensor, ""]
    shift = 0.0

    def see(self, out, labels):
        self.scale_ = out.logits.std()
        self.shift = out.features.mean().item()

    def score_outputs(self, out):
        return -(out.logits / self.scale_).logsumexp(dim=1) * (1 + self.shift)


class NameNeverSet(OutputDetector):
    __doc__ = DOC
    scale_: Float[Tensor, ""]
    shift_: Float[Tensor, ""]

    def finish(self):
        self.scale_ = torch.tensor(2.0)

    def score_outputs(self, out):
        return -(out.logits / self.scale_).logsumexp(dim=1)


class FitReturnsNothing(Mahalanobis):
    __doc__ = DOC

    def fit(self, batches):
        super().fit(batches)


class OnlyTheLastBatch(Mahalanobis):
    __doc__ = DOC

    def see(self, out, labels):
        self._moments = Moments(self.model.classes)
        super().see(out, labels)


class NaNForAMissingClass(Mahalanobis):
    __doc__ = DOC

    def see(self, out, labels):
        self._sum = self._sum + torch.zeros(3, 16).double().index_add(
            0, labels, out.features.double()
        )
        super().see(out, labels)

    def start(self):
        super().start()
        self._sum = 0.0

    def finish(self):
        count = self._moments.count
        self._moments.require_every_class = lambda: None
        super().finish()
        self.means_ = (self._sum / count[:, None]) @ self.whitener_.T


class NoFormula(MSP):
    """Does things."""


class NoSource(MSP):
    """s(x) = the margin."""


class PositionalHyperparameter(MSP):
    __doc__ = DOC

    def __init__(self, model, scale=1.0):
        super().__init__(model)
        self.scale = scale


class NotStoredByName(MSP):
    __doc__ = DOC

    def __init__(self, model, *, scale=1.0):
        super().__init__(model)
        self.factor = scale


class CostOfWords(MSP):
    __doc__ = DOC

    def cost(self):
        return "one forward"


class BoundsTooTight(MSP):
    __doc__ = DOC

    def bounds_from(self, out):
        found = super().bounds_from(out)
        middle, reach = (found.low + found.high) / 2, (found.high - found.low) / 20
        return Box(middle - reach, middle + reach)
