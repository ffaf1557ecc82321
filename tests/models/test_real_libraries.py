"""timm and torchvision as they are, where they import: `make peers` brings them.

Also by hand: PYTHONPATH=src python -m pytest tests/test_real_libraries.py --noconftest -o addopts=
"""

import numpy as np
import pytest
import torch
from libraries import imported
from PIL import Image
from safetensors.torch import save_file

import rood
from rood import data
from rood.attacks import PGD
from rood.detectors import KNN, MSP, fit_all
from rood.errors import DataError
from rood.goals import look_in
from rood.models.load import load_network
from rood.models.wrap import logits_only
from rood.threat import Linf

pytestmark = pytest.mark.filterwarnings("default")  # of other libraries, about each other


timm, no_timm = imported("timm")
torchvision, no_torchvision = imported("torchvision")
needs_timm = pytest.mark.skipif(timm is None, reason=no_timm)
needs_torchvision = pytest.mark.skipif(torchvision is None, reason=no_torchvision)


def images(n=4, size=64, seed=0):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def normal(x, mean, std):
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (mean, std))
    return (x - mean) / std


def attacked_and_fitted(model, x):
    """A detector of features and one of logits work on it, and the attack raises the goal."""
    found = {"msp": MSP(model), "knn": KNN(model, k=2)}
    fit_all(found.values(), [(x, torch.arange(len(x)))])
    for detector in found.values():
        goal = look_in(detector)
        moved = PGD(steps=2)(goal, x, Linf(2 / 255), torch.Generator().manual_seed(0))
        assert (goal(moved) >= goal(x)).all()
        assert (goal(moved) > goal(x)).any()


# timm


@needs_timm
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050", "vit_tiny_patch16_224"])
def test_a_network_of_timm_comes_with_its_own_mean_std_and_size(name, tmp_path):
    torch.manual_seed(0)
    net = timm.create_model(name, pretrained=False).eval()
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    model, card = load_network(f"timm:{name}", weights=tmp_path / "w.safetensors")
    config = timm.data.resolve_model_data_config(net)
    assert card["shape"] == [3, 224, 224]
    assert (card["mean"], card["std"]) == (list(config["mean"]), list(config["std"]))
    assert model.classes == 1000
    x = images(2, 224)
    with torch.no_grad():
        expected = net(normal(x, config["mean"], config["std"]))
        torch.testing.assert_close(model(x).logits, expected, rtol=1e-4, atol=1e-4)
        features = net.forward_head(
            net.forward_features(normal(x, config["mean"], config["std"])), pre_logits=True
        )
        torch.testing.assert_close(model(x).features, features, rtol=1e-4, atol=1e-4)


@needs_timm
def test_detectors_fit_and_attacks_climb_on_a_network_of_timm(tmp_path):
    net = timm.create_model("resnet18", pretrained=False, num_classes=7)
    attacked_and_fitted(rood.wrap(net), images())


# torchvision's networks


@needs_torchvision
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "vit_b_16"])
def test_a_network_of_torchvision_is_wrapped_as_it_is(name):
    size = 224 if name == "vit_b_16" else 64
    torch.manual_seed(0)
    net = getattr(torchvision.models, name)(weights=None, num_classes=7).eval()
    x = images(2, size)
    with torch.no_grad():
        expected = net(x)
    # squeezenet ends in a convolution
    model = logits_only(net, 7) if name == "squeezenet1_1" else rood.wrap(net)
    with torch.no_grad():
        torch.testing.assert_close(model(x).logits, expected, rtol=1e-4, atol=1e-4)


@needs_torchvision
def test_detectors_fit_and_attacks_climb_on_a_network_of_torchvision():
    torch.manual_seed(0)
    net = torchvision.models.resnet18(weights=None, num_classes=7)
    model = rood.wrap(net, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    assert model.head is net.fc
    attacked_and_fitted(model, images())


# torchvision's data sets


def picture(i):
    return np.random.default_rng(i).integers(0, 256, (6, 5, 3), dtype=np.uint8)


@needs_torchvision
def test_an_image_folder_of_torchvision_is_read(tmp_path):
    for i in range(6):
        place = tmp_path / "ab"[i % 2] / f"{i}.png"
        place.parent.mkdir(exist_ok=True)
        Image.fromarray(picture(i)).save(place)
    found = data.load(f"torchvision:ImageFolder?root={tmp_path}")
    assert (found.classes, found.labels.tolist()) == (("a", "b"), [0, 0, 0, 1, 1, 1])
    expected = [picture(i) for i in (0, 2, 4, 1, 3, 5)]
    assert (found.images.permute(0, 2, 3, 1).numpy() == np.stack(expected)).all()


@needs_torchvision
def test_downloaded_files_of_torchvision_are_read_and_missing_ones_said(tmp_path, monkeypatch):
    """MNIST as torchvision keeps it: two files of numbers with a header."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    x = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    sizes = b"".join(n.to_bytes(4, "big") for n in x.shape)
    for kind in ("train", "t10k"):
        (raw / f"{kind}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + sizes + x.tobytes())
        labels = b"\0\0\x08\x01" + (5).to_bytes(4, "big") + bytes([3, 1, 4, 1, 5])
        (raw / f"{kind}-labels-idx1-ubyte").write_bytes(labels)
    found = data.load(f"torchvision:MNIST?root={tmp_path}&train=false&download=false")
    assert found.labels.tolist() == [3, 1, 4, 1, 5]
    assert (found.images[:, 0].numpy() == x).all()
    monkeypatch.setenv("ROOD_OFFLINE", "1")
    with pytest.raises(DataError, match="torchvision cannot open CIFAR10"):
        data.load(f"torchvision:CIFAR10?root={tmp_path}")
