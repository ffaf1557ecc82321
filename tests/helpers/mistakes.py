"""What a user may get wrong in Python, run as a user would: prints what each mistake says.

Not under pytest, whose import hook checks types in the library and would answer first.
"""

import copy
import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import rood
from rood.attacks import PGD
from rood.detectors import KNN, MSP, Mahalanobis
from rood.errors import RoodError
from rood.testing import toy_world
from rood.testing.world import blobs
from rood.threat import Linf

world = toy_world()
MODEL, OTHER = world.model, copy.deepcopy(world.model)
X, Y = blobs(200, seed=12)
OUT = world.outside[:30]
FOLDER = Path(tempfile.mkdtemp())
FITTED = {"msp": MSP(MODEL)}


class Random(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.rand(X.shape[1:]), 0


def audit(**changes):
    given = {"model": MODEL, "detectors": FITTED, "inside": (X, Y), "outside": {"s": OUT}}
    given |= {"threats": [0.05], "attack": PGD(steps=1), "out": FOLDER / "out"} | changes
    model, detectors = given.pop("model"), given.pop("detectors")
    return rood.audit(model, detectors, **given)


def training():
    return rood.wrap(nn.Sequential(nn.Flatten(), nn.Linear(X[0].numel(), 3))).train()


def narrow():
    return rood.wrap(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 3)))


MISTAKES = {
    # the network
    "a bare network": lambda: audit(model=MODEL.net),
    "the class of a network": lambda: audit(model=nn.Linear),
    "no such network": lambda: audit(model="digit-ce"),
    "training mode": lambda: audit(model=training(), detectors=["msp"]),
    "the detector first": lambda: audit(model=FITTED["msp"], detectors=MODEL),
    "another kind of network": lambda: audit(model=narrow(), detectors=["msp"]),
    # detectors
    "no such detector": lambda: audit(detectors=["mps"]),
    "the class of a detector": lambda: audit(detectors=[MSP]),
    "not fitted": lambda: audit(detectors=[Mahalanobis(MODEL)]),
    "on another network": lambda: audit(detectors=[MSP(OTHER)]),
    "no detector": lambda: audit(detectors=[]),
    "the same twice": lambda: audit(detectors=["msp", MSP(MODEL)]),
    "a function": lambda: audit(detectors={"mine": lambda x: x}),
    "labels lacking": lambda: audit(detectors=["mahalanobis"], inside=X),
    # images
    "no images": lambda: audit(inside=None),
    "a list of images": lambda: audit(inside=[X[0], X[1]]),
    "8-bit range as floats": lambda: audit(inside=255 * X),
    "normalised": lambda: audit(inside=(X - 0.5) / 0.5),
    "one image": lambda: audit(outside=OUT[0]),
    "labels do not match": lambda: audit(inside=(X, Y[1:])),
    "one-hot labels": lambda: audit(inside=(X, torch.eye(3)[Y])),
    "too many classes": lambda: audit(inside=(X, Y + 5)),
    "another order of classes": lambda: audit(inside=(X, (Y + 1) % 3)),
    "the same images twice": lambda: audit(outside={"s": X[100:]}),
    "two sets in a tuple": lambda: audit(outside=(OUT, OUT)),
    "no outside": lambda: audit(outside={}),
    "random transforms": lambda: audit(inside=DataLoader(Random())),
    "no such folder": lambda: audit(inside="folder:valdiation"),
    "too few images": lambda: audit(inside=X[:40]),
    "calibrated on the test": lambda: audit(calibrate=X),
    "trained on the test": lambda: audit(detectors=["msp"], train=(X, Y)),
    "an empty data set": lambda: audit(outside=TensorDataset(OUT[:0])),
    "groups of nobody": lambda: audit(groups={"outside": [1] * 30}),
    "groups as a list": lambda: audit(groups=[1, 2]),
    # the attack
    "eps in levels": lambda: audit(threats=[8]),
    "eps of 0": lambda: audit(threats=[0]),
    "no norm of that name": lambda: audit(threats="linv:8/255"),
    "budgets by name": lambda: audit(threats={"linf": 0.1}),
    "the class of an attack": lambda: audit(attack=PGD),
    "no such attack": lambda: audit(attack="pdg"),
    "no such side": lambda: audit(sides="inward"),
    # the rest
    "a limit as text": lambda: audit(limit="all"),
    "a limit of 0": lambda: audit(limit=0),
    "a time without a unit": lambda: audit(time_limit=3),
    "a seed as text": lambda: audit(seed="0"),
    "no folder": lambda: audit(out=None),
    "an engine by name": lambda: audit(engine="ray"),
    "no such device": lambda: audit(device="gpu"),
    # elsewhere than in rood.audit
    "a detector of pixels outside [0, 1]": lambda: MSP(MODEL)(X - 1),
    "a detector of a number": lambda: MSP(MODEL)(5),
    "a detector on a bare network": lambda: MSP(MODEL.net),
    "k above the images": lambda: KNN(MODEL, k=500).fit((X, Y)),
    "a fit on text": lambda: KNN(MODEL).fit(5),
    "a fit without labels": lambda: Mahalanobis(MODEL).fit(X),
    "a guard of too few": lambda: rood.Guard.calibrated(MSP(MODEL), X[:5]),
    "a threat in levels": lambda: Linf(8),
    "data of a number": lambda: rood.data.load(5),
    "a wrapped string": lambda: rood.wrap("resnet18"),
    "mean of 8 bits": lambda: rood.wrap(MODEL.net, mean=(33,), std=(78,)),
    "a metric of one side": lambda: rood.metrics.auroc(inside=[], outside=[1.0]),
}


def said(mistake):
    before = set(FOLDER.iterdir())
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mistake()
    except Exception as e:
        left = [p.name for p in set(FOLDER.iterdir()) - before]
        return {"ours": isinstance(e, RoodError), "said": str(e), "left": left}
    return {"ours": False, "said": "; ".join(str(w.message) for w in caught), "left": []}


if __name__ == "__main__":
    json.dump({name: said(mistake) for name, mistake in MISTAKES.items()}, sys.stdout)
