"""An image-text model in the Hugging Face format: its towers, its tokenizer, its normalisation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from rood._lazy import optional
from rood.errors import CapabilityError, InputError, first_line

PROMPT = "a photo of a {}"
KINDS = {"clip": "CLIPModel", "siglip": "SiglipModel"}  # by the model type in config.json
TEXTS = 256  # texts at once in the text tower


@dataclass(frozen=True)
class Towers:
    """A CLIP or SigLIP with what prepares its texts and images."""

    name: str
    net: Any
    tokenizer: Any
    mean: Sequence[float]
    std: Sequence[float]

    @classmethod
    def load(cls, name: str | Path) -> "Towers":
        """Read a folder, or a name on the hub."""
        transformers = optional("transformers", "hub")
        usual = optional("transformers.utils.constants", "hub")
        try:
            kind = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False).model_type
            if kind not in KINDS:
                raise ValueError(f"a model of type {kind!r}")
            network = getattr(transformers, KINDS[kind])
            # safetensors only, the other format is a pickle; and no Python files of the source
            net = network.from_pretrained(name, use_safetensors=True).eval()
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            # only the settings: the image processor may need torchvision
            settings, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
        except (OSError, ValueError, ImportError) as e:
            raise CapabilityError(
                f"expected a CLIP or SigLIP model at {str(name)!r}, got: {first_line(e)}"
            ) from e
        mean = settings.get("image_mean") or usual.OPENAI_CLIP_MEAN
        return cls(
            str(name), net, tokenizer, mean, settings.get("image_std") or usual.OPENAI_CLIP_STD
        )

    def keys(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens of every text: texts of the same tokens have the same features."""
        return [tuple(row) for row in self.tokenizer(list(texts), truncation=True)["input_ids"]]

    def check_apart(self, texts: Sequence[str]) -> None:
        """Refuse a tokenizer that takes different texts for one."""
        if len(set(self.keys(texts))) < len(set(texts)):
            raise CapabilityError(
                f"expected a tokenizer that distinguishes all words at {self.name!r}, got the same "
                "tokens for some: are its files there, and the words in its alphabet?"
            )

    @torch.no_grad()
    def directions(
        self, words: Sequence[str], templates: Sequence[str]
    ) -> Float[Tensor, "words d"]:
        """The text feature of every word, of length one: the mean direction over the templates."""
        features = torch.cat(list(self._features(filled(words, templates))))
        each = normalize(features, dim=1).view(len(words), len(templates), -1)
        return normalize(each.mean(dim=1), dim=1)

    def _features(self, texts: Sequence[str]) -> Iterator[Tensor]:
        for i in range(0, len(texts), TEXTS):
            tokens = self.tokenizer(texts[i : i + TEXTS], **self._padding(), return_tensors="pt")
            yield embedding(self.net.get_text_features(**self._read(tokens)))

    def _padding(self) -> dict[str, Any]:
        """SigLIP was trained on texts padded to its full length, without an attention mask."""
        if self.net.config.model_type == "clip":
            return {"padding": True, "truncation": True}
        length = self.net.config.text_config.max_position_embeddings
        return {"padding": "max_length", "max_length": length, "truncation": True}

    def _read(self, tokens: Any) -> dict[str, Tensor]:
        read = ("input_ids", "attention_mask")
        used = read if self.net.config.model_type == "clip" else read[:1]
        return {k: tokens[k] for k in used}


def embedding(result: object) -> Tensor:
    """The projected features, which some versions of transformers wrap in an object."""
    found = getattr(result, "pooler_output", result)
    assert isinstance(found, Tensor)
    return found


def filled(words: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every word in every template, word by word."""
    if not templates or not all("{}" in t for t in templates):
        raise InputError(
            f"expected prompts with {{}} where the word goes, got {', '.join(map(repr, templates))}"
        )
    return [t.format(w.replace("_", " ")) for w in words for t in templates]


def listed(prompt: str | Sequence[str]) -> list[str]:
    """One template or several, as a list."""
    return [prompt] if isinstance(prompt, str) else list(prompt)
