"""A tiny CLIP of random weights in a folder, as the hub has them: for tests without the network."""

import json
import string

import pytest
import torch

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SIZE = 16
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
    tokens["preprocessor_config.json"] = {
        "image_processor_type": "CLIPImageProcessor",
        "image_mean": MEAN,
        "image_std": STD,
        "size": {"shortest_edge": SIZE},
    }
    for name, content in tokens.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n")
    n = len(vocab)
    both = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "projection_dim": 8,
    }
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
