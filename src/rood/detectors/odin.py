"""Temperature and one step of input preprocessing before the softmax score."""

from rood.detectors._gradient import score_and_gradient, smooth_sign
from rood.detectors.base import Detector, ScoreFunction
from rood.errors import InputError
from rood.models.model import Model
from rood.numerics.softmax import margin
from rood.shapes import Images, Scores


class ODIN(Detector):
    r"""s(x) = m(z(x') / T), x' = x + eta sign(grad_x log max softmax(z(x) / T)), m as in `MSP`.

    Liang et al., *Enhancing The Reliability of Out-of-distribution Image Detection in Neural
    Networks*, ICLR 2018, arXiv:1706.02690. eta is in pixel units; x' is not clipped to [0, 1];
    sign(0) = 0. The derivative of sign is 0, so the gradient omits the step: exact almost
    everywhere.
    """

    gradient = "almost_everywhere"

    def __init__(self, model: Model, *, temperature: float = 1000.0, eta: float = 0.0014) -> None:
        super().__init__(model)
        if not (temperature > 0 and eta >= 0):
            raise InputError(f"expected T > 0 and eta >= 0, got T = {temperature}, eta = {eta}")
        self.temperature = temperature
        self.eta = eta

    def score_images(self, x: Images) -> Scores:
        return self._margin(self.stepped(x))

    def stepped(self, x: Images) -> Images:
        """x'; its gradient treats the step as a constant."""
        _, gradient = score_and_gradient(self._margin, x)
        return x - self.eta * gradient.sign()

    def cost(self) -> tuple[int, int]:
        return 2, 1

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The sign smoothed to tanh, whose flips have a gradient."""

        def smooth(x: Images) -> Scores:
            return self._margin(x - self.eta * smooth_sign(self._margin, x))

        return (smooth,)

    def _margin(self, x: Images) -> Scores:
        return margin(self.model(x).logits.double(), self.temperature).to(x.dtype)
