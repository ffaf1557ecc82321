"""Masks with an honest value and a false gradient."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.masks.base import Mask, OutputMask
from rood.detectors.base import Detector
from rood.detectors.knn import KNN
from rood.models.model import Model, Outputs
from rood.numerics.softmax import margin
from rood.shapes import Batches, Images, Scores


class DetachedTerm(OutputMask):
    """Twice the detached score less the score: the value is right, the gradient points back."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return 2 * s.detach() - s


class TransferDecoy(Mask):
    """The value of the margin with the gradient of another score, the mean pixel."""

    def score_images(self, x: Images) -> Scores:
        decoy = x.flatten(1).mean(dim=1)
        return margin(self.model(x).logits).detach() + decoy - decoy.detach()


class RandomSignGradient(Mask):
    """A deterministic value whose gradient is multiplied by a random sign at every call."""

    def score_images(self, x: Images) -> Scores:
        s = margin(self.model(x).logits)
        sign = torch.randint(0, 2, s.shape, device=s.device).to(s) * 2 - 1
        return s.detach() + sign * (s - s.detach())


class TensorHook(OutputMask):
    """A hook on the score's tensor that negates the gradient in the backward pass."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        if s.requires_grad:
            s.register_hook(torch.neg)
        return s


class NumpyTerm(Mask):
    """The score computed in NumPy plus a thousandth of the mean pixel, which has a gradient."""

    def score_images(self, x: Images) -> Scores:
        z = self.model(x).logits.detach().cpu().numpy().astype(np.float64)
        z.sort(axis=1)
        s = np.log(np.exp(z[:, :-1] - z[:, -1:]).sum(axis=1))
        return torch.from_numpy(s).to(x) + 1e-3 * x.flatten(1).mean(dim=1)


class GradModeSwitch(Mask):
    """The margin without autograd, and the darkness of the image as soon as autograd records."""

    def score_images(self, x: Images) -> Scores:
        if torch.is_grad_enabled() and x.requires_grad:
            return -x.flatten(1).mean(dim=1)
        return margin(self.model(x).logits)


class NumpyKnn(Mask):
    """The distance to the 10th nearest training feature, searched in NumPy: no gradient."""

    bank_: Float[Tensor, "n d"]

    @classmethod
    def hidden(cls, model: Model) -> Detector:
        return KNN(model, k=10)

    def fit_images(self, batches: Batches) -> None:
        with torch.no_grad():
            found = [self.model(x).features for x, _ in batches]
        self.bank_ = normalize(torch.cat(found), dim=1)

    def score_images(self, x: Images) -> Scores:
        f = normalize(self.model(x).features, dim=1)
        f, bank = f.detach().cpu().numpy(), self.bank_.cpu().numpy()
        far = np.linalg.norm(f[:, None] - bank[None], axis=2)
        return torch.from_numpy(np.sort(far, axis=1)[:, 9]).to(x)
