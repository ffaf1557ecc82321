"""The benchmark beside OpenOOD: its networks begin, and its images look, as OpenOOD's do."""

import argparse
import math

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

from benchmarks.peers import openood as bench
from rood.data.base import ImageSet
from rood.training.loop import Epoch


def halved(side: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of two photographs, halved bicubically and bilinearly."""
    found: dict[int, list[np.ndarray]] = {Image.BICUBIC: [], Image.BILINEAR: []}
    for photo in load_sample_images().images:
        for top in range(0, photo.shape[0] - side, side):
            for left in range(0, photo.shape[1] - side, side):
                piece = Image.fromarray(photo[top : top + side, left : left + side])
                for way, images in found.items():
                    images.append(np.asarray(piece.resize((side // 2, side // 2), way)))
    bicubic, bilinear = (torch.from_numpy(np.stack(v)).permute(0, 3, 1, 2) for v in found.values())
    return bicubic, bilinear


def test_what_was_halved_bicubically_becomes_what_bilinear_halving_gives():
    bicubic, bilinear = halved()
    softer = bench.as_bilinear(ImageSet("photographs", bicubic)).images
    off = lambda images: (images.float() - bilinear.float()).abs().mean().item()
    assert softer.dtype == torch.uint8
    assert off(bicubic) > 1
    assert off(softer) < 0.25 * off(bicubic)


def test_networks_begin_with_the_values_that_torch_would_give_them():
    ours, again = (bench.fresh(1).net.requires_grad_(False) for _ in range(2))
    for layer, other in zip(ours.modules(), again.modules(), strict=True):
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        twin = type(layer)(*layer_size(layer)).requires_grad_(False)
        assert torch.equal(layer.weight, other.weight)
        assert math.isclose(layer.weight.std(), twin.weight.std(), rel_tol=0.1)
        assert math.isclose(layer.weight.abs().max(), twin.weight.abs().max(), rel_tol=0.02)
    assert ours.head.bias.abs().max() > 0


def layer_size(layer: nn.Module) -> tuple:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return layer.in_channels, layer.out_channels, layer.kernel_size


def numbered(n: int) -> np.ndarray:
    """Images of one colour each, which says the place."""
    places = np.arange(n)
    colours = np.stack([places // 256, places % 256, 0 * places], axis=1).astype(np.uint8)
    return np.broadcast_to(colours[:, None, None], (n, 32, 32, 3))


def places(images: ImageSet) -> set[int]:
    return {256 * int(a) + int(b) for a, b in images.images[:, :2, 16, 16]}


def test_tiny_imagenet_is_tuned_on_or_tested_on_and_shares_no_class_with_cifar10(tmp_path):
    names = np.array([*sorted(bench.SHARED)[:2], "n0", "n1"])
    labels = np.arange(2400) % 4
    sizes = {"tinyimagenet_val_32": 2400, "cifar100_test": 9, "mnist_test": 9}
    sizes |= {"svhn_test5k": bench.FAR_AT_MOST + 9, "dtd10_32": 9, "scenes6_32": 9}
    for name, n in sizes.items():
        known = {"labels": labels, "classes": names} if name.startswith("tiny") else {}
        np.savez(tmp_path / f"{name}.npz", images=numbered(n), **known)
    outliers, tested = bench.packs(tmp_path)
    of_others = set(np.flatnonzero(labels >= 2).tolist())
    assert len(outliers) == 1000
    assert len(tested["tin"]) == 200
    assert places(outliers) | places(tested["tin"]) == of_others
    assert places(tested["tin"]) == places(tested["tin_bicubic"])
    assert len(tested["svhn"]) == bench.FAR_AT_MOST


def test_the_network_goes_back_to_its_best_epoch_and_of_equals_to_the_later_one():
    model = bench.fresh(1)

    def epochs(accuracies):
        for i, accuracy in enumerate(accuracies, 1):
            model.net.head.bias.data.fill_(i)
            yield Epoch(i, len(accuracies), 0.0, 0.1, 1.0, accuracy)

    assert bench.keep_best(model, epochs([0.2, 0.9, 0.9, 0.5])).epoch == 3
    assert (model.net.head.bias == 3).all()


def test_the_best_epoch_is_chosen_on_images_that_nothing_is_tested_on(tmp_path, monkeypatch):
    pixels = torch.from_numpy(numbered(2000).transpose(0, 3, 1, 2).copy())
    images = ImageSet("cifar10", pixels, torch.zeros(2000, dtype=torch.long))
    monkeypatch.setattr(bench, "cifar10", lambda folder: (images, images))
    judged_on = []

    def train(model, objective, images, *, settings, device, held_out):
        judged_on.append(held_out)
        yield Epoch(1, 1, 0.0, 0.1, 1.0, 0.5)

    monkeypatch.setattr(bench, "train", train)
    facts = {"seed": 1, "he": False, "epochs": 1, "device": "cpu", "compile": False}
    bench.run_training(argparse.Namespace(cifar10=tmp_path, run=tmp_path, **facts))
    assert len(judged_on[0]) == 1000
    assert not places(judged_on[0]) & places(bench.held_out(images)[1])
