"""Densities of the features and of randomly perturbed logits, against those of training images."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, pad

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Sample
from rood.seeds import generator
from rood.shapes import Features, Labels, Scores

FLOOR, FLOOR_LOGITS = 0.01, 0.025  # added to every density
CHUNK = 256  # images at once in finish(): a perturbed head has many outputs


class WeiPer(OutputDetector):
    r"""s(x) = J(f) + a J(z~) - b mean_i max softmax(z~_i), z~ = the logits of `heads` noisy heads.

    J(v) is the symmetric KL divergence between the density of the entries of v, smoothed, and the
    mean density over training images, both in `bins` bins between the extremes of training. Every
    weight vector w of a noisy head is w + distance ||w|| e, e uniform on the sphere. Granz et al.,
    *WeiPer: OOD Detection using Weight Perturbations of Class Projections*, NeurIPS 2024,
    arXiv:2405.17164 (WeiPer+KLD; a, b are its lambda_1, lambda_2, the widths its s_1, s_2). An
    entry is split between the two nearest bins, so that densities have a gradient. Sign: negated.
    """

    gradient = "almost_everywhere"

    noise_: Float[Tensor, "n k d"]
    ends_: Float[Tensor, "2 2"]  # least and largest feature; least and largest perturbed logit
    densities_: Float[Tensor, "2 m"]

    def __init__(
        self,
        model: Model,
        *,
        heads: int = 100,
        distance: float = 1.8,
        a: float = 2.5,
        b: float = 0.1,
        bins: int = 100,
        width: int = 4,
        width_logits: int = 15,
        sample: int = 10_000,
        seed: int = 0,
    ) -> None:
        super().__init__(model)
        if not (heads >= 1 and distance >= 0 and bins >= 2 and width >= 1 and width_logits >= 1):
            raise InputError(
                "expected heads, widths >= 1, distance >= 0 and bins >= 2, got "
                f"{heads}, {width}, {width_logits}, {distance} and {bins}"
            )
        self.heads = heads
        self.distance = distance
        self.a = a
        self.b = b
        self.bins = bins
        self.width = width
        self.width_logits = width_logits
        self.sample = sample
        self.seed = seed

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._rows.see(out.features, out.keys)

    def finish(self) -> None:
        rows = self._rows.rows().double()
        del self._rows
        w = self.model.head.weight.double()
        g = generator(self.seed, "weight perturbations")
        e = torch.randn(self.heads, *w.shape, generator=g, dtype=w.dtype).to(w.device)
        self.noise_ = self.distance * normalize(e, dim=2) * w.norm(dim=1, keepdim=True)
        parts = rows.split(CHUNK)
        ends = torch.stack([_stack(map(_ends, self._views(f))) for f in parts])  # (parts, 2, 2)
        self.ends_ = torch.stack([ends[:, :, 0].amin(dim=0), ends[:, :, 1].amax(dim=0)], dim=1)
        sums = [_stack(d.sum(dim=0) for d in self._densities(f)) for f in parts]
        self.densities_ = _stack(sums).sum(dim=0) / len(rows)

    def _logits(self, f: Features) -> Float[Tensor, "b n k"]:
        """z~."""
        head = self.model.head
        z = torch.einsum("bd,nkd->bnk", f, head.weight.double() + self.noise_.double())
        return z if head.bias is None else z + head.bias.double()

    def _views(self, f: Features) -> tuple[Tensor, Tensor]:
        return f, self._logits(f).flatten(1)

    def _densities(self, f: Features) -> list[Float[Tensor, "b m"]]:
        both = zip(self._views(f), self.ends_.double(), strict=True)
        return [density(v, ends[0], ends[1], self.bins) for v, ends in both]

    def score_outputs(self, out: Outputs) -> Scores:
        f = out.features.double()
        features, logits = self._densities(f)
        of_features, of_logits = self.densities_.double()
        j = divergence(of_features, smoothed(features, self.width), FLOOR)
        j_logits = divergence(of_logits, smoothed(logits, self.width_logits), FLOOR_LOGITS)
        confidence = self._logits(f).softmax(dim=2).amax(dim=2).mean(dim=1)
        return j + self.a * j_logits - self.b * confidence

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (MSP(self.model).score_images,)


def density(v: Float[Tensor, "b n"], low: Tensor, high: Tensor, bins: int) -> Float[Tensor, "b m"]:
    """The share of the entries in each bin; beyond the ends they count in the last bins."""
    width = (high - low).clamp_min(torch.finfo(v.dtype).tiny)
    place = (bins * (v - low) / width - 0.5).clamp(0, bins - 1)
    left = place.detach().long().clamp_max(bins - 2)
    part = place - left
    empty = v.new_zeros(v.shape[0], bins)
    return empty.scatter_add(1, left, 1 - part).scatter_add(1, left + 1, part) / v.shape[1]


def smoothed(q: Float[Tensor, "b m"], width: int) -> Float[Tensor, "b m"]:
    """The mean over `width` neighbouring bins, the ends repeated."""
    before = (width - 1) // 2
    m = q.shape[1]
    padded = pad(q[:, None], (before, width - 1 - before), mode="replicate").squeeze(1)
    return torch.stack([padded[:, i : i + m] for i in range(width)]).mean(dim=0)


def divergence(
    p: Float[Tensor, " m"], q: Float[Tensor, "b m"], floor: float
) -> Float[Tensor, " b"]:
    """KL(p || q) + KL(q || p) = sum (p - q) (log p - log q), after adding `floor` to both."""
    p, q = p + floor, q + floor
    p, q = p / p.sum(), q / q.sum(dim=1, keepdim=True)
    return ((p - q) * (p.log() - q.log())).sum(dim=1)


def _stack(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts))


def _ends(v: Tensor) -> Tensor:
    return torch.stack(v.aminmax())
