"""Networks from anywhere: hubs, exported programs, Python functions; what each can serve."""

import importlib.util
import io
import json
import pickle
import sys
import warnings
import zipfile
from functools import partial
from types import ModuleType, SimpleNamespace

import pytest
import torch
from refusals import refused
from safetensors.torch import save_file
from torch import nn

from rood import wrap
from rood.attacks.base import value_and_gradient
from rood.detectors import KNN, MSP
from rood.errors import CapabilityError, CheckpointError, InputError, UnknownNameError
from rood.goals import look_in
from rood.models import zoo
from rood.models.load import find_network as find
from rood.models.load import load_network
from rood.models.sources.huggingface import normalisation
from rood.models.wrap import logits_only, without_features

load = partial(load_network, trust=True)  # test_trust.py has what happens without
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SHAPE = (3, 8, 8)


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def make_net(after=None, classes=4):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net(after, classes)


class Net(nn.Module):
    def __init__(self, after, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 10))
        self.head = nn.Linear(10, classes)
        self.after = after

    def forward(self, x):
        f = self.body(x).relu()
        z = self.head(f)
        return self.after(z, f) if self.after else z


def images(n=6, shape=SHAPE):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(1))


def normal(x):
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (x - mean) / std


@pytest.fixture
def module(monkeypatch):
    """A module `own_nets`, into which tests put functions."""
    made = ModuleType("own_nets")
    monkeypatch.setitem(sys.modules, "own_nets", made)
    return made


# names and files of rood's own


def test_the_zoo_and_checkpoints_go_by_their_names():
    model, card = load("digits-ce")
    assert model.classes == len(card["classes"])
    assert (card["notes"], card["logits_only"]) == ([], False)
    assert model.fingerprint() == zoo.load("digits-ce").fingerprint()
    with pytest.raises(InputError, match="expected no weights, mean or std beside 'digits-ce'"):
        load("digits-ce", mean=(0.5,))


def test_what_is_no_name_is_answered_with_what_there_is():
    refused(UnknownNameError, "did you mean 'digits-ce'", load, "digits-cee")
    refused(InputError, ".safetensors, or hf:NAME, timm:NAME, FILE.pt2", load, "some/where.onnx")


# Python functions


def test_a_function_makes_a_network_and_a_file_its_weights(module, tmp_path):
    trained = make_net()
    module.make = lambda: Net(None, 4)
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    parallel = {f"module.{k}": v for k, v in trained.state_dict().items()}
    torch.save({"state_dict": parallel, "epoch": 3}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        model, card = load(
            "own_nets:make", weights=tmp_path / name, mean=MEAN, std=STD, shape=SHAPE
        )
        torch.testing.assert_close(model(images()).logits, trained(normal(images())))
        assert model(images()).features.shape == (6, 10)
        assert card["shape"] == [3, 8, 8]
        assert card["notes"] == []


def test_a_function_may_give_a_model_of_rood(module):
    module.make = lambda: wrap(make_net(), mean=MEAN, std=STD)
    model, card = load("own_nets:make", shape=SHAPE)
    torch.testing.assert_close(model(images()).logits, make_net()(normal(images())))
    assert card["mean"] == pytest.approx(MEAN)


def test_modules_of_the_working_directory_are_found(tmp_path, monkeypatch):
    code = "from torch import nn\nmake = lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3))"
    (tmp_path / "here_only.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    model, card = load("here_only:make", shape=SHAPE)
    assert model.classes == 3
    assert "it has the weights that its function set" in card["notes"][0]
    assert sys.path == before


def test_functions_and_weights_that_do_not_fit_are_refused_with_the_reason(module, tmp_path):
    module.make = make_net
    module.needs = lambda width: None
    module.three = lambda: 3
    save_file(make_net(classes=7).state_dict(), tmp_path / "seven.safetensors")
    save_file({"x": torch.ones(1)}, tmp_path / "x.safetensors")
    for spec, file, error, says in (
        ("nowhere_at_all:make", None, CapabilityError, "cannot import 'nowhere_at_all'"),
        ("own_nets:maek", None, InputError, "a function 'maek' in 'own_nets', found make, needs"),
        ("own_nets:needs", None, InputError, "to need no arguments"),
        ("own_nets:three", None, InputError, "an nn.Module from 'own_nets:three', got int"),
        ("own_nets:make", "seven", CheckpointError, r"of shape \(4,\) in .* got \(7,\)"),
        ("own_nets:make", "x", CheckpointError, "lacks 'body.0.bias': is it for another"),
    ):
        weights = None if file is None else tmp_path / f"{file}.safetensors"
        with pytest.raises(error, match=says):
            load(spec, weights=weights, shape=SHAPE)


def test_a_network_that_does_not_tell_its_size_is_asked_for_it(module):
    module.make = make_net
    refused(InputError, "expected the image size for 'own_nets:make'", load, "own_nets:make")
    with pytest.raises(CapabilityError, match=r"take images of shape \(3, 9, 9\), .* size right"):
        load("own_nets:make", shape=(3, 9, 9))


def test_normalisation_inside_the_network_is_left_there(module):
    """As RobustBench does it: mean 0 and std 1 outside."""

    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = make_net()

        def forward(self, x):
            return self.model(normal(x))

    module.make = Normalised
    model, _ = load("own_nets:make", shape=SHAPE)
    torch.testing.assert_close(model(images()).logits, make_net()(normal(images())))


# what networks return


@pytest.mark.parametrize(
    ("after", "note"),
    [
        (lambda z, f: (z, f), "several outputs: 0 is used as the logits"),
        (lambda z, f: [f, z], "several outputs: 1 is used as the logits"),
        (lambda z, f: {"prediction": z, "x": f}, "'prediction' is used as the logits"),
        (lambda z, f: {"features": f, "logits": z}, "'logits' is used as the logits"),
        (lambda z, f: SimpleNamespace(logits=z, hidden=f), None),
    ],
)
def test_logits_are_found_in_what_a_network_returns(module, after, note):
    module.make = lambda: make_net(after)
    model, card = load("own_nets:make", shape=SHAPE, mean=MEAN, std=STD)
    torch.testing.assert_close(model(images()).logits, make_net()(normal(images())))
    assert model(images()).features.shape == (6, 10)
    assert not card["logits_only"]
    assert (note in card["notes"][-1]) if note else card["notes"][1:] == []


def test_a_network_that_returns_no_logits_is_refused(module):
    module.make = lambda: make_net(lambda z, f: (z[:, :, None], "words"))
    with pytest.raises(CapabilityError, match=r"expected the network to return logits \(b, k\)"):
        load("own_nets:make", shape=SHAPE)


def test_a_network_that_can_return_features_too_is_wrapped_as_it_is(module):
    """OpenOOD's networks: net(x, return_feature=True) gives both."""

    class Both(Net):
        def forward(self, x, return_feature=False):
            f = self.body(x).relu()
            return (self.head(f), f) if return_feature else self.head(f)

    net = Both(None, 4)
    module.make = lambda: net
    out = load("own_nets:make", shape=SHAPE)[0](images())
    z, f = net(images(), return_feature=True)
    torch.testing.assert_close(out.logits, z)
    torch.testing.assert_close(out.features, f)


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (lambda z, f: (z.softmax(1) + (2 * z).softmax(1)) / 2, "probabilities, whose log"),
        (lambda z, f: z.log_softmax(1), "it returns log-probabilities; energy and max_logit"),
    ],
)
def test_averaged_probabilities_are_converted_by_their_logarithm_and_declared(module, after, says):
    module.make = lambda: make_net(after)
    model, card = load("own_nets:make", shape=SHAPE)
    assert says in card["notes"][-1]
    assert card["logits_only"]
    found = model(images()).logits.softmax(dim=1)
    theirs = make_net(after)(images())
    torch.testing.assert_close(found, theirs if "whose" in says else theirs.exp())
    assert (value_and_gradient(look_in(MSP(model)), images())[1] != 0).any()


def test_a_head_that_is_not_linear_leaves_the_logits_alone(module):
    module.make = lambda: make_net(lambda z, f: 3 * z.tanh())
    model, card = load("own_nets:make", shape=SHAPE)
    torch.testing.assert_close(model(images()).logits, make_net(module.make().after)(images()))
    assert card["logits_only"]
    assert "logits only: expected the logits to come straight from a linear layer" in str(card)


def test_who_reads_features_that_are_none_is_told():
    model = logits_only(make_net(lambda z, f: z**3), 4)
    x, y = images(60), torch.arange(60) % 4
    assert model(x).features.equal(model(x).logits)
    with without_features(model):
        MSP(model).score(x)
        refused(CapabilityError, "got one that returns logits only", KNN(model).fit, [(x, y)])
    KNN(model).fit([(x, y)])


# programs


def scripted(net, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(net, images(2)), path)
    return str(path)


def test_a_torchscript_file_gives_logits_and_their_gradient(tmp_path):
    path = scripted(make_net().eval(), tmp_path / "net.pt")
    model, card = load(path, shape=SHAPE, mean=MEAN, std=STD)
    torch.testing.assert_close(model(images()).logits, make_net()(normal(images())))
    assert card["logits_only"]
    assert "logits only: no linear layer was found" in card["notes"][0]
    theirs = wrap(make_net(), mean=MEAN, std=STD)
    ours, plain = (value_and_gradient(look_in(MSP(m)), images())[1] for m in (model, theirs))
    torch.testing.assert_close(ours, plain)


def test_a_state_dict_is_no_network(tmp_path):
    torch.save(make_net().state_dict(), tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"say --model package.module:function --weights"):
        load(str(tmp_path / "w.pth"), shape=SHAPE)
    refused(CheckpointError, "found none", load, str(tmp_path / "none.pt"), shape=SHAPE)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return exported(make_net(), tmp_path_factory.mktemp("pt2") / "net.pt2", dynamic=True)


def exported(net, path, *, dynamic):
    n = 2 if dynamic else 1
    shapes = ({0: torch.export.Dim("b")},) if dynamic else None
    torch.export.save(torch.export.export(net.eval(), (images(n),), dynamic_shapes=shapes), path)
    return str(path)


def test_an_exported_program_gives_features_and_gradient_too(program):
    model, card = load(program, mean=MEAN, std=STD)
    plain = wrap(make_net(), mean=MEAN, std=STD)
    for ours, theirs in zip(model(images())[:2], plain(images())[:2], strict=True):
        torch.testing.assert_close(ours, theirs)
    assert (card["shape"], card["logits_only"], card["notes"]) == ([3, 8, 8], False, [])
    ours, theirs = (value_and_gradient(look_in(MSP(m)), images())[1] for m in (model, plain))
    torch.testing.assert_close(ours, theirs)


def test_a_program_for_one_image_is_run_image_by_image(tmp_path):
    path = exported(make_net(), tmp_path / "one.pt2", dynamic=False)
    model, card = load(path)
    torch.testing.assert_close(model(images()).logits, make_net()(images()))
    torch.testing.assert_close(model(images()).features, make_net().body(images()).relu())
    assert card["notes"] == ["exported for one image at a time: slow"]


def test_an_exported_head_that_is_not_linear_leaves_the_logits_alone(tmp_path):
    net = make_net(lambda z, f: z.tanh())
    model, card = load(exported(net, tmp_path / "tanh.pt2", dynamic=True))
    torch.testing.assert_close(model(images()).logits, net(images()))
    assert card["logits_only"]


def test_an_exported_program_with_a_pickle_inside_is_never_opened(program, tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("opened",))

    def tampered(name, change):
        path = tmp_path / name
        with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
            for part in old.namelist():
                new.writestr(part, change(part, old.read(part)))
        return str(path)

    def marked(part, content):
        if not part.endswith("model_weights_config.json"):
            return content
        config = json.loads(content)
        next(iter(config["config"].values()))["use_pickle"] = True
        return json.dumps(config).encode()

    def swapped(part, content):
        if not part.endswith("sample_inputs/model.pt"):
            return content
        buffer = io.BytesIO()
        torch.save(Evil(), buffer, pickle_module=pickle)
        return buffer.getvalue()

    refused(CheckpointError, "which rood never unpickles", load, tampered("marked.pt2", marked))
    refused(CheckpointError, "which is more than tensors", load, tampered("swapped.pt2", swapped))
    (tmp_path / "no.pt2").write_bytes(b"no archive")
    with pytest.raises(CheckpointError, match=r"damaged or not a file of torch\.export\.save"):
        load(str(tmp_path / "no.pt2"))


# hubs


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A vision transformer of random weights, in a folder as the hub has it."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=16,
        patch_size=8,
        id2label={0: "cat", 1: "dog", 2: "ship"},
        label2id={"cat": 0, "dog": 1, "ship": 2},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.ViTForImageClassification(config).save_pretrained(folder)
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}
    settings |= {"image_mean": MEAN, "image_std": STD, "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@torch.no_grad()
def their_logits(folder, x):
    from transformers import ViTForImageClassification

    return ViTForImageClassification.from_pretrained(folder).eval()(normal(x)).logits


def test_a_hugging_face_folder_brings_its_mean_std_size_and_classes(vit):
    model, card = load(f"hf:{vit}")
    x = images(shape=(3, 16, 16))
    torch.testing.assert_close(model(x).logits, their_logits(vit, x))
    assert model(x).features.shape == (6, 16)
    assert card["classes"] == ["cat", "dog", "ship"]
    assert card["shape"] == [3, 16, 16]
    assert card["mean"] == pytest.approx(MEAN)


def test_images_of_another_size_are_resized_inside_the_model(vit):
    model, card = load(f"hf:{vit}", shape=(3, 8, 8))
    larger = torch.nn.functional.interpolate(images(), (16, 16), mode="bilinear", antialias=True)
    torch.testing.assert_close(model(images()).logits, their_logits(vit, larger))
    assert card["shape"] == [3, 8, 8]
    assert (value_and_gradient(look_in(MSP(model)), images())[1] != 0).all(dim=(1, 2, 3)).any()


def test_without_a_processor_pixels_go_in_as_they_are_and_the_card_says_so(vit, tmp_path):
    for file in vit.iterdir():
        if "preprocessor" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    _, card = load(f"hf:{tmp_path}")
    assert (card["shape"], card["mean"]) == ([3, 16, 16], [0.0])
    assert "no image processor was found" in card["notes"][0]


def test_what_is_not_there_is_not_looked_for_when_offline():
    pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
    with pytest.raises(CapabilityError, match="expected an image classifier on this machine at"):
        load("hf:nobody/nothing")


@pytest.mark.parametrize(
    ("settings", "mean", "std"),
    [
        ({}, (0.0,), (1.0,)),
        ({"image_mean": [0.5], "image_std": [0.25]}, (0.5,), (0.25,)),
        ({"image_mean": 0.5, "image_std": 0.5, "do_normalize": False}, (0.0,), (1.0,)),
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True, "do_normalize": False}, 0.5, 0.5),
        ({"do_rescale": False, "image_mean": [127.0], "image_std": [128.0]}, 127 / 255, 128 / 255),
    ],
)
def test_a_processors_numbers_are_turned_into_units_of_pixels(settings, mean, std):
    found = normalisation(settings)
    assert found[0] == pytest.approx(mean if isinstance(mean, tuple) else (mean,))
    assert found[1] == pytest.approx(std if isinstance(std, tuple) else (std,))


def stand_in(monkeypatch):
    """What rood calls of timm, as its documentation has it."""
    timm, data = ModuleType("timm"), ModuleType("timm.data")
    asked = []

    def create_model(name, pretrained=False):
        asked.append((name, pretrained))
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        net = make_net()
        net.pretrained_cfg = {"label_names": ["a", "b", "c", "d"]}
        return net

    timm.create_model = create_model
    data.resolve_model_data_config = lambda net: {
        "input_size": SHAPE,
        "interpolation": "bicubic",
        "mean": MEAN,
        "std": STD,
        "crop_pct": 0.875,
        "crop_mode": "center",
    }
    timm.data = data
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    return asked


def test_a_network_of_timm_brings_its_configuration(monkeypatch, tmp_path):
    asked = stand_in(monkeypatch)
    model, card = load("timm:small")
    torch.testing.assert_close(model(images()).logits, make_net()(normal(images())))
    assert (card["shape"], card["classes"]) == ([3, 8, 8], ["a", "b", "c", "d"])
    assert "centre crop of 0.875" in card["notes"][0]
    save_file(make_net().state_dict(), tmp_path / "w.safetensors")
    load("timm:small", weights=tmp_path / "w.safetensors")
    assert asked == [("small", True), ("small", False)]
    refused(CapabilityError, "timm has no pretrained 'tall'", load, "timm:tall")


def test_a_timm_that_does_not_import_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    refused(CapabilityError, "needs timm, which does not import", load, "timm:resnet18")


def timm_imports():
    if importlib.util.find_spec("timm") is None:
        return False
    try:
        import timm  # noqa: F401
    except Exception:
        return False
    return True


@pytest.mark.skipif(not timm_imports(), reason="timm does not import here")
def test_a_real_network_of_timm_is_read(tmp_path):
    import timm

    net = timm.create_model("resnet18", pretrained=False)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    model, card = load("timm:resnet18", weights=tmp_path / "w.safetensors")
    assert (model.classes, card["shape"][0]) == (1000, 3)


def test_a_network_is_found_before_its_images_are_known(module):
    module.make = make_net
    found = find("own_nets:make", mean=MEAN, std=STD)
    assert found.shape is None
    model, _ = found.build(SHAPE)
    torch.testing.assert_close(model(images()).logits, make_net()(normal(images())))
