"""Zero-shot detection by an image-text model, on a tiny CLIP made here."""

import sys

import numpy as np
import pytest
import references as ref
import tiny_clip
import torch
from PIL import Image
from tiny_clip import IN, MEAN, OUT, SIZE, STD

from rood.attacks import PGD
from rood.detectors import CLIP, MSP
from rood.errors import CapabilityError, InputError
from rood.goals import look_in
from rood.models.sources.clip import zero_shot
from rood.threat import Linf


@pytest.fixture(scope="module", autouse=True)
def offline():
    """No test may wait for a hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory, offline):
    return tiny_clip.save(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def model(folder):
    return zero_shot(folder, inside=IN, outside=OUT)


@pytest.fixture
def x():
    return torch.rand(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def their_logits(folder, x, texts):
    """CLIP's own logits, each text on its own, so that none is padded."""
    from transformers import AutoTokenizer, CLIPModel

    clip = CLIPModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    normal = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    columns = [
        clip(pixel_values=normal, **tokenizer([t], return_tensors="pt")).logits_per_image
        for t in texts
    ]
    return torch.cat(columns, dim=1)


def photos(words):
    return [f"a photo of a {w.replace('_', ' ')}" for w in words]


# the model


def test_the_logits_are_clips_own(folder, model, x):
    want = their_logits(folder, x, photos(IN + OUT))
    ref.close(model(x).logits, want.numpy(), rtol=1e-4)
    assert want.std(dim=1).min() > 0.1  # the words do differ
    assert model.classes == 5


def test_the_prompt_and_bare_words_reach_the_text_model(folder, x):
    for prompt, texts in (("{}", ["cat", "big dog", "car"]), ("no {} here", ["no cat here"])):
        outside = ["car"]
        model = zero_shot(folder, inside=IN, outside=outside, prompt=prompt)
        want = their_logits(folder, x, texts)
        ref.close(model(x).logits[:, : len(texts)], want.numpy(), rtol=1e-4)


def test_underscores_are_spaces(folder, x):
    a, b = (zero_shot(folder, inside=[w], outside=["car"]) for w in ("big_dog", "big dog"))
    assert torch.equal(a(x).logits, b(x).logits)


def test_features_are_of_length_one_and_the_head_holds_the_texts(model, x):
    f = model(x).features
    assert torch.allclose(f.norm(dim=1), torch.ones(6))
    assert model.head.bias is None
    lengths = model.head.weight.norm(dim=1)
    assert torch.allclose(lengths, lengths[0].expand(5))


def test_images_of_another_size_are_resized_as_clip_prepares_them(folder, model):
    g = np.random.default_rng(0)
    coarse = g.integers(60, 200, (50, 50, 3), dtype=np.uint8)  # fine detail, to be averaged away
    for size in (8, 50):
        image = Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)
        resized = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
        small, own = (
            torch.from_numpy(np.array(v)).permute(2, 0, 1)[None] / 255 for v in (image, resized)
        )
        want = their_logits(folder, own, photos(IN + OUT))
        assert torch.allclose(model(small).logits, want, atol=0.1)  # 8-bit rounding: 0.03


def test_mean_and_std_come_from_the_folder_and_weights_are_frozen(model):
    assert torch.allclose(model.mean.flatten(), torch.tensor(MEAN))
    assert torch.allclose(model.std.flatten(), torch.tensor(STD))
    assert not any(p.requires_grad for p in model.parameters())
    assert not model.training


# the detector


@pytest.mark.parametrize("combine", ["max_difference", "softmax_sum"])
def test_the_score_equals_its_reference(combine, model, x):
    want = []
    for z in model(x).logits.tolist():
        if combine == "max_difference":
            want.append(max(z[2:]) - max(z[:2]))
        else:
            p = sum(ref.softmax(z)[2:])
            want.append(np.log(p / (1 - p)))
    s = CLIP(model, inside=2, combine=combine).score(x)
    ref.close(s, want, rtol=1e-3)


def test_all_words_at_once_stand_in_for_the_two_that_lead(model, x):
    (soft,) = CLIP(model, inside=2).surrogates()
    other = CLIP(model, inside=2, combine="softmax_sum")
    assert torch.equal(soft(x), other.score(x))
    assert other.surrogates() == ()


def test_softmax_sum_ranks_as_the_papers_sum(model, x):
    s = CLIP(model, inside=2, combine="softmax_sum").score(x)
    p = torch.tensor([sum(ref.softmax(z)[2:]) for z in model(x).logits.tolist()])
    assert torch.equal(s.argsort(), p.argsort())


@pytest.mark.parametrize("inside", [0, 5, -1])
def test_in_words_must_leave_out_words(inside, model):
    with pytest.raises(InputError, match="ID words"):
        CLIP(model, inside=inside)


@pytest.mark.parametrize("combine", ["max_difference", "softmax_sum"])
@pytest.mark.parametrize("size", [SIZE, 8])
def test_an_attack_on_the_pixels_lowers_the_score(combine, size, model):
    g = torch.Generator().manual_seed(1)
    x = torch.rand(6, 3, size, size, generator=g)
    d = CLIP(model, inside=2, combine=combine)
    found = PGD(steps=10, restarts=1)(look_in(d), x, Linf(8 / 255), g)
    assert (found - x).abs().max() <= 8 / 255 + 1e-6
    assert (d.score(found) < d.score(x)).all()


def test_the_gradient_is_that_of_differences(folder):
    model = zero_shot(folder, inside=IN, outside=OUT).double()
    d = CLIP(model, inside=2)
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(2)).double()
    x = 0.1 + 0.8 * x
    probe = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(d.score(probe).sum(), probe)
    with torch.no_grad():
        want = ref.slopes(lambda v: d.score(torch.from_numpy(v)).tolist(), x.numpy()[0])[None]
    ref.close(g, want, rtol=1e-3)


def test_the_words_are_an_ordinary_classifier_to_other_detectors(model, x):
    assert MSP(model).score(x).isfinite().all()


# refusals


@pytest.mark.parametrize(("inside", "outside"), [([], ["a", "b"]), (["a"], [])])
def test_an_id_word_and_two_words_in_all_are_needed(inside, outside):
    with pytest.raises(InputError, match="at least one ID word, and two words in all, got"):
        zero_shot("nowhere", inside=inside, outside=outside)


def test_id_words_alone_make_a_classifier_but_leave_clip_nothing_to_compare_with(folder, x):
    model = zero_shot(folder, inside=IN)
    assert model(x).logits.shape == (6, 2)
    with pytest.raises(InputError, match="expected 1 to 1 ID words of 2 words, got 2"):
        CLIP(model, inside=2)


def copy_without(folder, place, *prefixes):
    place.mkdir()
    for file in folder.iterdir():
        if not file.name.startswith(prefixes):
            (place / file.name).symlink_to(file)
    return place


@pytest.mark.parametrize("what", ["missing", "empty", "no preparation"])
def test_a_folder_that_is_no_clip_is_refused_in_one_sentence(what, folder, tmp_path):
    name = tmp_path / "clip"
    if what == "empty":
        name.mkdir()
    elif what == "no preparation":
        copy_without(folder, name, "preprocessor")
    with pytest.raises(CapabilityError) as e:
        zero_shot(name, inside=IN, outside=OUT)
    assert str(e.value).startswith(f"expected a CLIP or SigLIP model at {str(name)!r}, got: ")
    assert "\n" not in str(e.value)


def test_words_that_the_tokenizer_takes_for_one_are_refused(folder, tmp_path):
    with pytest.raises(CapabilityError, match="distinguishes all words"):
        zero_shot(folder, inside=["猫"], outside=["犬"])  # not in its alphabet
    bare = copy_without(folder, tmp_path / "clip", "vocab", "merges", "tokenizer")
    with pytest.raises(CapabilityError):  # some releases make up an empty tokenizer
        zero_shot(bare, inside=IN, outside=OUT)


def test_a_folder_that_names_no_mean_has_that_of_the_first_clip(folder, tmp_path):
    name = copy_without(folder, tmp_path / "clip", "preprocessor")
    (name / "preprocessor_config.json").write_text("{}")
    model = zero_shot(name, inside=IN, outside=OUT)
    assert model.mean.flatten().tolist() == pytest.approx([0.48145466, 0.4578275, 0.40821073])


def test_without_transformers_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CapabilityError, match=r"^needs transformers: pip install 'rood\[hub\]'$"):
        zero_shot("nowhere", inside=IN, outside=OUT)
