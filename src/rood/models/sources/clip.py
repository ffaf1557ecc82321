"""CLIP and SigLIP as zero-shot classifiers over words."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from rood.errors import InputError
from rood.models.model import Model
from rood.models.sources._towers import PROMPT, Towers, embedding, filled, listed
from rood.models.wrap import wrap


def zero_shot(
    name: str | Path,  # a folder or a name on the Hugging Face hub
    *,
    inside: Sequence[str],
    outside: Sequence[str] = (),
    prompt: str | Sequence[str] = PROMPT,  # "{}" for the bare words; of several the mean direction
) -> Model:
    """A `Model` whose logits are exp(logit_scale) cos(image, text), the ID words first.

    The text features are computed once and become the weights of the head, so that no score runs
    the text tower. SigLIP adds its logit_bias to all logits. Images are resized to the network's
    own size, bicubic with antialiasing as in CLIP. Needs the extra `hub`.
    """
    words = (*inside, *outside)
    if not inside or len(words) < 2:
        raise InputError(
            "expected at least one ID word, and two words in all, got "
            f"{len(inside)} ID words and {len(outside)} OOD words"
        )
    towers, templates = Towers.load(name), listed(prompt)
    towers.check_apart(filled(words, templates))
    bias = getattr(towers.net, "logit_bias", None)
    with torch.no_grad():
        weight = towers.net.logit_scale.exp() * towers.directions(words, templates)
        head = nn.Linear(weight.shape[1], len(words), bias=bias is not None)
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias.expand(len(words)))
    net = _ZeroShot(towers.net, head, towers.net.config.vision_config.image_size, words)
    return wrap(net, head="head", mean=towers.mean, std=towers.std)


class _ZeroShot(nn.Module):
    def __init__(self, clip: nn.Module, head: nn.Linear, size: int, words: Sequence[str]) -> None:
        super().__init__()
        self.clip = clip
        self.head = head
        self.size = size
        self.words = tuple(words)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (self.size, self.size):
            x = interpolate(x, (self.size, self.size), mode="bicubic", antialias=True)
        image = embedding(self.clip.get_image_features(pixel_values=x))  # type: ignore[operator]
        return self.head(normalize(image, dim=1))
