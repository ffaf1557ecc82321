"""A tiny CLIP or SigLIP of random weights in a folder, as on the hub: no test needs a network."""

import json
import string

import pytest
import torch

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SIZE = 16
TOWER = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
IN, OUT = ["cat", "big_dog"], ["car", "ship", "tree"]


def save(folder):
    """Write the model and its tokenizer, of letters and two merges; skip without transformers."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
    folder.mkdir(exist_ok=True)
    letters = string.ascii_lowercase
    ends = ["<|startoftext|>", "<|endoftext|>"]
    vocab = [*letters, *(c + "</w>" for c in letters), "_</w>", "ca", "cat</w>", *ends]
    tokens = {"vocab.json": {t: i for i, t in enumerate(vocab)}}
    tokens["tokenizer_config.json"] = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": 32,
        **{"bos_token": ends[0], "eos_token": ends[1]},
        **{"unk_token": ends[1], "pad_token": ends[1]},
    }
    size = {"shortest_edge": SIZE}
    tokens["preprocessor_config.json"] = _preparation("CLIPImageProcessor", size)
    for name, content in tokens.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n")
    n = len(vocab)
    both = TOWER | {"projection_dim": 8}
    text = {"vocab_size": n, "max_position_embeddings": 32, "bos_token_id": n - 2}
    config = transformers.CLIPConfig(
        text_config=both | text | {"eos_token_id": n - 1, "pad_token_id": n - 1},
        vision_config=both | {"image_size": SIZE, "patch_size": 8},
        projection_dim=8,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.CLIPModel(config).save_pretrained(folder)
    return folder


def save_siglip(folder):
    """Write a SigLIP, whose tokenizer knows letters and spaces."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: rood[hub]")
    folder.mkdir(exist_ok=True)
    ends = ["<pad>", "</s>", "<unk>"]
    vocab = {t: i for i, t in enumerate([*ends, *string.ascii_lowercase, " "])}
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token=ends[2]))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    end = [(ends[1], vocab[ends[1]])]
    tokens.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=end)
    names = dict(zip(("pad_token", "eos_token", "unk_token"), ends, strict=True))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, model_max_length=32, **names
    )
    tokenizer.save_pretrained(folder)
    size = {"height": SIZE, "width": SIZE}
    prepared = json.dumps(_preparation("SiglipImageProcessor", size))
    (folder / "preprocessor_config.json").write_text(prepared)
    text = {"vocab_size": len(vocab), "max_position_embeddings": 32, "projection_size": 16}
    text |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    config = transformers.SiglipConfig(
        text_config=TOWER | text, vision_config=TOWER | {"image_size": SIZE, "patch_size": 8}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.SiglipModel(config)
    with torch.no_grad():
        model.logit_scale.fill_(3.0)
        model.logit_bias.fill_(-2.0)
    model.save_pretrained(folder)
    return folder


def _preparation(kind, size):
    return {"image_processor_type": kind, "image_mean": MEAN, "image_std": STD, "size": size}
