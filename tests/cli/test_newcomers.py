"""Fifty mistakes of somebody who types `rood` for the first time: each gets one helpful line.

Expected, got, what to do; exit code 1, or 2 for what is no option; nothing is written.
"""

import zipfile

import pytest
import torch
from bad_input import class_folder, flat_folder, refused
from small_audit import small_model
from torch import nn
from typer.testing import CliRunner

from rood.cli import app
from rood.testing.world import blobs

NETWORKS = """
import torch
from torch import nn
from rood.models import backbones
from small_audit import small_model
good = lambda: small_model().net
new = lambda: backbones.create('small_cnn', classes=3, channels=3, width=4)
wide = lambda: backbones.create('small_cnn', classes=3, channels=3, width=8)
grey = lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 3))
broken = lambda: 1 / 0
number = lambda: 5
asks = lambda width: nn.Linear(width, 3)
"""
NET = ["--model", "net.safetensors"]
INSIDE, OUTSIDE = ["--inside", "inside.npz"], ["--outside", "s=stripes.npz"]
MOMENTS = ["--mean", "0.4,0.4,0.4", "--std", "0.25,0.25,0.25"]
QUICK = ["--detectors", "msp", "--steps", "1", "--device", "cpu", "--out", "out"]
USUAL = [*INSIDE, *OUTSIDE, *QUICK]


def own(name, *more):
    return ["audit", "--model", f"newcomer_net:{name}", *more, *USUAL]


def with_net(*more):
    return ["audit", *NET, *USUAL, *more]


def outside(spec):
    return ["audit", *NET, *INSIDE, "--outside", spec, *QUICK]


def inside(spec):
    return ["audit", "--model", "newcomer_net:good", *MOMENTS, "--inside", spec, *OUTSIDE, *QUICK]


# what was typed -> what the line says
MISTAKES = {
    # the network
    "no images named": (["audit", *NET], ["expected --inside", "--inside folder:DIR"]),
    "the network as argument": (["audit", "net.safetensors"], ["--model net.safetensors"]),
    "images as argument": (["audit", "inside.npz"], ["expected TOML", "--inside inside.npz"]),
    "no such file": (["audit", "--model", "no.safetensors", *USUAL], ["no.safetensors"]),
    "a Python file": (["audit", "--model", "newcomer_net.py", *USUAL], ["package.module:function"]),
    "a state_dict": (["audit", "--model", "w.pth", *USUAL], ["state_dict", "--weights w.pth"]),
    "code without trust": (["audit", "--model", "net.pt", *USUAL], ["--trust", "'net.pt'"]),
    "no such module": (["audit", "--model", "nonet:make", *USUAL], ["cannot import 'nonet'"]),
    "no such function": (own("make"), ["expected a function 'make'", "found asks"]),
    "a function that raises": (own("broken"), ["ZeroDivisionError", "line 10 of", "newcomer_net"]),
    "a function with arguments": (own("asks"), ["need no arguments"]),
    "not a network": (own("number"), ["nn.Module", "got int"]),
    "weights of another network": (own("wide", "--weights", "w.pth"), ["another network"]),
    "weights that are not there": (own("new", "--weights", "no.pth"), ["no.pth", "found none"]),
    "weights that are text": (own("new", "--weights", "notes.txt"), ["state_dict() only"]),
    "no weights": (own("new", *MOMENTS), ["near chance, 0.333", "--anyway"]),
    "a name of no hub": (["audit", "--model", "hug:resnet", *USUAL], ["hf:NAME"]),
    # normalisation
    "no mean and std": (own("good"), ["mean and std of the network's training", "--anyway"]),
    "8-bit mean": (own("good", "--mean", "33", "--std", "78"), ["[0, 1]", "divide"]),
    "two means": (own("good", "--mean", "0.4,0.4"), ["each of 3 channels", "got 2"]),
    "three means on grey": (
        own("grey", *MOMENTS),
        ["to take images of shape (3, 8, 8)", "1 channels"],
    ),
    "a word as mean": (own("good", "--mean", "imagenet"), ["--mean", "0.485,0.456,0.406"]),
    "std 0": (own("good", "--std", "0"), ["std > 0"]),
    "mean of a known network": (with_net("--mean", "0.4"), ["whose card has them"]),
    # images
    "a zip": (outside("z=pictures.zip"), ["pictures.zip' is a file", "unpack it"]),
    "one image": (outside("z=pictures/1.png"), ["give the folder that holds it"]),
    "an empty folder": (outside("z=empty"), ["got none", "jpeg"]),
    "texts": (outside("z=texts"), ["got none", "png"]),
    "texts called images": (outside("z=fake"), ["fake/a.png", "--skip-bad"]),
    "a wrong prefix": (outside("z=dir:pictures"), ["no source is called 'dir'"]),
    "no path": (outside("z=nowhere/at/all"), ["'nowhere/at/all' does not exist"]),
    "no name": (outside("=stripes.npz"), ["with a name", "got ''"]),
    "both sides the same": (outside("z=inside.npz"), ["other images for --outside", "'z'"]),
    "a name twice": (with_net("--outside", "s=grey.npz"), ["its own name", "'s' twice"]),
    "another class order": (inside("classes"), ["1.00 in another order", "rename them to"]),
    "training images that are tested": (with_net("--train", "inside.npz"), ["share no image"]),
    # the attack
    "eps as 8": (with_net("--eps", "8"), ["at most 1", "did you mean 8/255?"]),
    "eps 0": (with_net("--eps", "0"), ["a budget above 0", "--eps none"]),
    "eps with a blank": (with_net("--eps", "1/255 2/255"), ["linf:8/255", "'1/255 2/255'"]),
    "negative eps": (with_net("--eps", "-0.1"), ["eps >= 0"]),
    "a detector misspelt": (with_net("--detectors", "mps"), ["did you mean 'msp'?"]),
    "an attack of others": (with_net("--attack", "autoattack"), ["expected one of apgd"]),
    "no unit of time": (with_net("--time", "10"), ["90s, 10m or 2h", "'10'"]),
    "negative limit": (with_net("--limit", "-5"), ["at least 1 image", "-5"]),
    "a gate in percent": (with_net("--fail-under", "70"), ["0 to 1", "did you mean 0.7?"]),
    "no such device": (with_net("--device", "gpu"), ["cpu or cuda", "'gpu'"]),
    # the folder
    "out is a file": (with_net("--out", "notes.txt", "--limit", "20"), ["cannot write", "choose"]),
    "out is somebody's": (with_net("--out", "pictures", "--limit", "20"), ["another folder"]),
    # other commands
    "a report of nothing": (["report", "nothing"], ["run `rood audit` first"]),
    "score without guard": (["score", "nothing", "pictures"], ["rood fit writes one"]),
    "a rate in percent": (["fit", *NET, *INSIDE, "--rate", "5", "--out", "g"], ["try 0.05"]),
    "a list of nothing": (["list", "detektors"], ["did you mean 'detectors'?"]),
}
USAGE = {
    "a command misspelt": (["aduit"], "Did you mean 'audit'?"),
    "an option of nobody": (["audit", "--epsilon", "8/255"], "--eps"),
    "a word for a number": (["audit", "--limit", "many"], "'--limit'"),
}


@pytest.fixture(scope="module")
def place(files):
    """The usual files, and what a newcomer has besides."""
    (files / "newcomer_net.py").write_text(NETWORKS)
    (files / "notes.txt").write_text("mine")
    torch.save(small_model().net.state_dict(), files / "w.pth")
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    torch.jit.trace(plain, torch.zeros(1, 3, 8, 8)).save(str(files / "net.pt"))
    flat_folder(files / "pictures")
    with zipfile.ZipFile(files / "pictures.zip", "w") as packed:
        packed.write(files / "pictures" / "1.png")
    for folder, name in (("texts", "a.txt"), ("fake", "a.png"), ("empty", ".hidden")):
        (files / folder).mkdir()
        (files / folder / name).write_text("x")
    class_folder(files / "classes", *blobs(240, seed=5), ("red", "green", "blue"))
    return files


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line_that_helps(place, monkeypatch, mistake):
    words, said = MISTAKES[mistake]
    monkeypatch.chdir(place)
    refused(CliRunner().invoke(app, words), *said)
    assert not (place / "out").exists()
    assert (place / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("mistake", USAGE)
def test_what_is_no_option_is_said_with_what_is(place, monkeypatch, mistake):
    words, said = USAGE[mistake]
    monkeypatch.chdir(place)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert said in result.output


def test_there_are_more_than_fifty():
    assert len(MISTAKES) + len(USAGE) > 50
