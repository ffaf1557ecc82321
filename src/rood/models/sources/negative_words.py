"""Words that are far from all ID words, from a large corpus: OOD words for CLIP."""

from collections.abc import Sequence
from pathlib import Path

import torch

from rood.errors import InputError
from rood.models.sources._towers import PROMPT, Towers, filled, listed

ROWS = 1024  # words at once: `quantile` refuses large tensors


def negative_words(
    name: str | Path,  # a folder or a name on the Hugging Face hub
    *,
    inside: Sequence[str],
    corpus: Sequence[str],  # such as the nouns of WordNet
    count: int = 10_000,  # words to keep at most
    quantile: float = 0.95,
    prompt: str | Sequence[str] = PROMPT,
) -> list[str]:
    """The words of a corpus that are furthest from the ID words, furthest first.

    How near a word is: the `quantile` of its cosines with all ID words, which one similar ID word
    alone does not decide. Jiang et al., *Negative Label Guided OOD Detection with Pretrained
    Vision-Language Models*, ICLR 2024, arXiv:2403.20078 (NegMining). A word that the tokenizer
    takes for an ID word or for an earlier word of the corpus is left out.
    """
    if not (inside and corpus and count >= 1 and 0 <= quantile <= 1):
        raise InputError(
            "expected ID words, a corpus, a count >= 1 and a quantile in [0, 1], got "
            f"{len(inside)} ID words, {len(corpus)} words, {count} and {quantile}"
        )
    towers, templates = Towers.load(name), listed(prompt)
    towers.check_apart(filled(inside, templates))
    words = _others(towers, inside, corpus, templates[:1])
    own = towers.directions(inside, templates)
    near = [
        (towers.directions(words[i : i + ROWS], templates) @ own.T).quantile(quantile, dim=1)
        for i in range(0, len(words), ROWS)
    ]
    return [words[i] for i in torch.cat(near).argsort(stable=True)[:count].tolist()]


def _others(
    towers: Towers, inside: Sequence[str], corpus: Sequence[str], template: Sequence[str]
) -> list[str]:
    """The words whose tokens are those of no ID word and of no earlier word."""
    taken = set(towers.keys(filled(inside, template)))
    words = []
    for word, key in zip(corpus, towers.keys(filled(corpus, template)), strict=True):
        if key not in taken:
            words.append(word)
        taken.add(key)
    if not words:
        raise InputError(
            f"expected a corpus of other words than the ID words, got {len(corpus)} of those"
        )
    return words
