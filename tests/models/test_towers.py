"""The text side of an image-text model: templates, features made once, SigLIP, other models."""

import json
import tomllib

import pytest
import references as ref
import tiny_clip
import torch
from tiny_clip import IN, MEAN, OUT, SIZE, STD

from rood.errors import CapabilityError, InputError
from rood.models.sources._towers import KINDS, Towers
from rood.models.sources.clip import zero_shot

TEMPLATES = ["a photo of a {}", "no {} here"]


@pytest.fixture(scope="module", autouse=True)
def offline():
    """No test may wait for a hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module", params=["clip", "siglip"])
def folder(request, tmp_path_factory, offline):
    save = tiny_clip.save if request.param == "clip" else tiny_clip.save_siglip
    return save(tmp_path_factory.mktemp("towers") / request.param)


@pytest.fixture
def x():
    return torch.rand(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def normal(x):
    return (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


@torch.no_grad()
def their_logits(folder, x, texts):
    """The model's own logits of every text on its own, from one call of the whole model."""
    import transformers

    net = getattr(transformers, KINDS[folder.name]).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    full = {} if folder.name == "clip" else {"padding": "max_length", "max_length": 32}
    columns = []
    for text in texts:
        tokens = tokenizer([text], return_tensors="pt", **full)
        given = dict(tokens) if folder.name == "clip" else {"input_ids": tokens["input_ids"]}
        columns.append(net(pixel_values=normal(x), **given).logits_per_image)
    return torch.cat(columns, dim=1)


def test_the_logits_are_the_models_own(folder, x):
    model = zero_shot(folder, inside=IN, outside=OUT)
    texts = [f"a photo of a {w.replace('_', ' ')}" for w in (*IN, *OUT)]
    want = their_logits(folder, x, texts)
    ref.close(model(x).logits, want.numpy(), rtol=1e-4)
    assert want.std(dim=1).min() > 0.01  # the words do differ
    assert (model.head.bias is None) == (folder.name == "clip")


def test_of_several_templates_a_word_has_the_mean_direction(folder):
    towers = Towers.load(folder)
    got = towers.directions(IN, TEMPLATES)
    assert got.shape == (2, towers.directions(IN, TEMPLATES[:1]).shape[1])
    for i, word in enumerate(IN):
        texts = [t.format(word.replace("_", " ")) for t in TEMPLATES]
        each = torch.cat([towers.directions([t], ["{}"]) for t in texts]).double()
        mean = each.mean(dim=0)
        ref.close(got[i], (mean / mean.norm()).numpy(), rtol=1e-4)
    model = zero_shot(folder, inside=IN, outside=OUT, prompt=TEMPLATES)
    w = model.head.weight[:2]
    ref.close(w / w.norm(dim=1, keepdim=True), got.numpy(), rtol=1e-4)


def test_no_score_runs_the_text_tower(folder, x, monkeypatch):
    model = zero_shot(folder, inside=IN, outside=OUT)
    monkeypatch.setattr(model.net.clip, "get_text_features", None)
    monkeypatch.setattr(model.net.clip.text_model, "forward", None)
    assert model(x).logits.isfinite().all()
    assert model.net.words == (*IN, *OUT)


def test_words_are_data_of_which_the_networks_hash_speaks(folder):
    file = 'inside = ["cat", "big_dog"]\noutside = ["car", "ship", "tree"]\n'
    told = zero_shot(folder, **tomllib.loads(file)).fingerprint()
    assert told == zero_shot(folder, inside=IN, outside=OUT).fingerprint()
    other = zero_shot(folder, **tomllib.loads(file + 'prompt = ["a photo of a {}", "{}"]\n'))
    assert other.fingerprint() != told


def test_many_texts_in_parts_have_the_features_of_each_alone(folder, monkeypatch):
    words = ["a", "bb", "cccc", "dog", "ship"]
    towers = Towers.load(folder)
    want = torch.cat([towers.directions([w], TEMPLATES) for w in words])
    monkeypatch.setattr("rood.models.sources._towers.TEXTS", 3)
    assert torch.allclose(towers.directions(words, TEMPLATES), want, atol=1e-5)


@pytest.mark.parametrize("prompt", ["a photo", [], ["a {}", "a photo"]])
def test_a_prompt_needs_a_place_for_the_word(prompt, folder):
    with pytest.raises(InputError, match=r"prompts with \{\} where the word goes, got"):
        zero_shot(folder, inside=IN, outside=OUT, prompt=prompt)


def test_another_kind_of_model_is_named(tmp_path, folder):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(CapabilityError, match=r"CLIP or SigLIP model at .*, got: a model of type"):
        Towers.load(tmp_path)


def test_a_tokenizer_that_lacks_its_library_is_one_sentence(tmp_path):
    pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
    folder = tiny_clip.save_siglip(tmp_path / "siglip")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    with pytest.raises(CapabilityError) as e:
        Towers.load(folder)
    assert str(e.value).startswith("expected a CLIP or SigLIP model at ")
    assert "\n" not in str(e.value)
