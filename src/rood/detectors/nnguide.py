"""Energy guided by the nearest training features and their energy."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Sample
from rood.shapes import Labels, Scores


class NNGuide(OutputDetector):
    r"""s(x) = -lse(z) mean_{i in N} lse(z_i) u_i . u, u = f / ||f||, N the k largest terms.

    i runs over training images. Park et al., *Nearest Neighbor Guidance for Out-of-Distribution
    Detection*, ICCV 2023, arXiv:2309.14888. The bank is a sample of at most `sample` training
    images (the authors' code: the first 1 %). Sign: negated.
    """

    gradient = "almost_everywhere"

    bank_: Float[Tensor, "n d"]  # lse(z_i) u_i

    def __init__(self, model: Model, *, k: int = 100, sample: int = 10_000) -> None:
        super().__init__(model)
        if not 1 <= k <= sample:
            raise InputError(f"expected 1 <= k <= sample, got k = {k}, sample = {sample}")
        self.k = k
        self.sample = sample

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        guide = normalize(out.features, dim=1) * out.logits.logsumexp(dim=1, keepdim=True)
        self._rows.see(guide, out.keys)

    def finish(self) -> None:
        bank = self._rows.rows()
        del self._rows
        if len(bank) < self.k:
            raise InputError(
                f"expected at least k = {self.k} training images, got {len(bank)}: "
                "lower k or give more"
            )
        self.bank_ = bank

    def score_outputs(self, out: Outputs) -> Scores:
        near = normalize(out.features, dim=1) @ self.bank_.to(out.features.dtype).T  # (b, n)
        guidance = near.topk(self.k, dim=1).values.mean(dim=1)
        return -out.logits.logsumexp(dim=1) * guidance

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (Energy(self.model).score_images,)
