"""CLIP as a zero-shot classifier over words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from rood._lazy import optional
from rood.errors import CapabilityError, InputError
from rood.models.model import Model
from rood.models.wrap import wrap

PROMPT = "a photo of a {}"


def zero_shot(
    name: str | Path,  # a folder or a name on the Hugging Face hub
    *,
    inside: Sequence[str],
    outside: Sequence[str],
    prompt: str = PROMPT,  # "{}" for the bare words
) -> Model:
    """A `Model` whose logits are exp(logit_scale) cos(image, text), the ID words first.

    The text features are computed once and become the weights of the head. Images are resized to
    the network's own size, bicubic with antialiasing as in CLIP. Needs the extra `hub`.
    """
    if not inside or not outside:
        raise InputError("expected at least one ID word and one OOD word")
    clip, tokenizer, mean, std = _load(name)
    words = [prompt.format(w.replace("_", " ")) for w in (*inside, *outside)]
    tokens = tokenizer(words, padding=True, truncation=True, return_tensors="pt")
    if len({tuple(row) for row in tokens["input_ids"].tolist()}) < len(set(words)):
        raise CapabilityError(
            f"expected a tokenizer that distinguishes all words at {str(name)!r}, got the same "
            "tokens for some: are its files there, and the words in its alphabet?"
        )
    with torch.no_grad():
        text = normalize(_embedding(clip.get_text_features(**tokens)), dim=1)
        weight = clip.logit_scale.exp() * text
    head = nn.Linear(weight.shape[1], len(words), bias=False)
    head.weight.data.copy_(weight)
    size = clip.config.vision_config.image_size
    net = _ZeroShot(clip, head, size)
    return wrap(net, head="head", mean=mean, std=std)


class _ZeroShot(nn.Module):
    def __init__(self, clip: nn.Module, head: nn.Linear, size: int) -> None:
        super().__init__()
        self.clip = clip
        self.head = head
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (self.size, self.size):
            x = interpolate(x, (self.size, self.size), mode="bicubic", antialias=True)
        image = _embedding(self.clip.get_image_features(pixel_values=x))  # type: ignore[operator]
        return self.head(normalize(image, dim=1))


def _embedding(result: object) -> Tensor:
    """The projected features, which some versions of transformers wrap in an object."""
    found = getattr(result, "pooler_output", result)
    assert isinstance(found, Tensor)
    return found


def _load(name: str | Path) -> tuple[Any, Any, Sequence[float], Sequence[float]]:
    """The model, its tokenizer, and its mean and std."""
    transformers = optional("transformers", "hub")
    usual = optional("transformers.utils.constants", "hub")
    try:
        # safetensors only, the other format is a pickle; and no Python files of the source
        model = transformers.CLIPModel.from_pretrained(name, use_safetensors=True).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        # only the settings: the image processor may need torchvision
        settings, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
    except (OSError, ValueError) as e:
        reason = str(e).splitlines()[0]
        raise CapabilityError(f"expected a CLIP model at {str(name)!r}, got: {reason}") from e
    mean, std = settings.get("image_mean"), settings.get("image_std")
    return model, tokenizer, mean or usual.OPENAI_CLIP_MEAN, std or usual.OPENAI_CLIP_STD
