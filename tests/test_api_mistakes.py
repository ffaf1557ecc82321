"""What a user gets wrong in Python is refused in one sentence: expected, got, what to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "helpers" / "mistakes.py"
WORDS = {
    # the network
    "a bare network": ("expected a Model", "got Sequential", "rood.wrap(net, mean="),
    "the class of a network": ("expected a Model", "got the class Linear", "rood.wrap("),
    "no such network": ("no trained network is called 'digit-ce'", "did you mean 'digits-ce'?"),
    "training mode": ("expected a network in eval mode", "call model.eval()"),
    "the detector first": ("expected the network first", "got the detector MSP", "swap the two"),
    "another kind of network": ("expected images that the network takes", "got (3, 8, 8)"),
    # detectors
    "no such detector": ("no detector is called 'mps'", "did you mean 'msp'?"),
    "the class of a detector": ("expected a detector", "the class MSP", "write MSP(model)"),
    "not fitted": ("expected fitted detectors", "got Mahalanobis(", "call fit()", "give train="),
    "on another network": ("expected detector 'msp' to be built on the model given",),
    "no detector": ("expected at least one detector", "got none"),
    "the same twice": ("its own name", "got 'msp' twice", "give a mapping"),
    "a function": ("expected a detector", 'a name such as "knn"', "got function"),
    "labels lacking": ("expected labelled images to fit mahalanobis", "got none", "train=(x, y)"),
    # images
    "no images": ("expected images for inside", "got NoneType"),
    "a list of images": ("expected images for inside", "got list", "torch.stack(...)"),
    "8-bit range as floats": ("expected pixels in [0, 1]", "got [", "divide 8-bit values by 255"),
    "normalised": ("expected pixels in [0, 1]", "do not normalise: the wrapped network does"),
    "one image": ("expected a batch of images", "got one", "give images[None]"),
    "labels do not match": ("expected one label per image", "got 200 images and 199 labels"),
    "one-hot labels": ("expected one class number per image", "got float32", "take argmax"),
    "too many classes": ("expected labels 0 to 2 for model", "got up to 7", "network's classes?"),
    "another order of classes": ("expected class folders in the order", "got accuracy", "anyway="),
    "the same images twice": ("expected other images for --outside", "got 100 of 100", "anyway="),
    "two sets in a tuple": ("expected one class number per image", "sets go into a list"),
    "no outside": ("expected at least one out-of-distribution set", "got none"),
    "random transforms": ("the same image at every reading", "got two", "leave random transforms"),
    "no such folder": ("expected a folder of images", "'valdiation' does not exist"),
    "too few images": ("expected at least 20 in-distribution", "got 13", "give more images"),
    "calibrated on the test": ("expected calibrate and inside to share no image", "remove them"),
    "trained on the test": ("expected --train and the test images to share no image", "remove"),
    "an empty data set": ("expected images in 'outside'", "got an empty data set"),
    "groups of nobody": ("no image set is called 'outside'", "did you mean 'inside'?"),
    "groups as a list": ("expected groups by set, such as {'inside': [...]}", "got list"),
    # the attack
    "eps in levels": ("expected eps of at most 1", "got 8", "did you mean 8/255?"),
    "eps of 0": ("expected a budget above 0", "got linf:0", "threats=[] in Python"),
    "no norm of that name": ("no norm is called 'linv'", "did you mean 'linf'?"),
    "budgets by name": ('expected budgets such as 8 / 255, "linf:8/255"', "got dict"),
    "the class of an attack": ("expected an attack", "the class PGD", "write PGD()"),
    "no such attack": ("no attack is called 'pdg'", "did you mean 'pgd'?"),
    "no such side": ("expected sides among outside, inside, both", "got ('inward',)"),
    # the rest
    "a limit as text": ("expected a whole number as limit", "got 'all'"),
    "a limit of 0": ("expected a limit of at least 1 image", "got 0"),
    "a time without a unit": ("expected a time such as 90s, 10m or 2h", "got '3'"),
    "a seed as text": ("expected a whole number as seed", "got '0'"),
    "no folder": ("expected a results folder as out", "got NoneType"),
    "an engine by name": ("expected an engine, such as Ray()", "got str"),
    "no such device": ("expected a device such as cpu or cuda", "got 'gpu'"),
    # elsewhere than in rood.audit
    "a detector of pixels outside [0, 1]": ("expected pixels in [0, 1]", "do not normalise first"),
    "a detector of a number": ("expected images as a tensor (b, c, h, w)", "got int"),
    "a detector on a bare network": ("expected a Model for MSP", "got Sequential", "rood.wrap("),
    "k above the images": ("expected at least k = 500 training images", "got 200", "lower k"),
    "a fit on text": ("expected images for training images", "got int"),
    "a fit without labels": ("expected labels 0 to 2", "got -1 to -1", "class by class"),
    "a guard of too few": ("expected at least 19 in-distribution", "got 5", "give more images"),
    "a threat in levels": ("expected eps of at most 1", "got 8", "did you mean 8/255?"),
    "data of a number": ("expected a spec or path of images", "got int"),
    "a wrapped string": ("expected a torch.nn.Module to wrap", "got str", "rood.zoo.load"),
    "mean of 8 bits": ("expected mean and std of pixels in [0, 1]", "got (33,)", "by 255"),
    "a metric of one side": ("expected at least one inside score", "got none", "give more"),
}


@pytest.fixture(scope="module")
def answers():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)  # nothing else is printed


def test_every_mistake_is_in_the_table(answers):
    assert len(WORDS) >= 30
    assert set(answers) == set(WORDS)


@pytest.mark.parametrize("mistake", WORDS)
def test_a_mistake_is_refused_in_one_sentence(answers, mistake):
    answer = answers[mistake]
    assert answer["ours"], answer  # a RoodError, and neither silence nor an error from inside
    for word in WORDS[mistake]:
        assert word in answer["said"], answer["said"]
    assert "\n" not in answer["said"]
    assert not answer["said"].endswith(".")
    assert answer["left"] == []  # no folder was begun
