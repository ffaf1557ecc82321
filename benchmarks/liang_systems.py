"""The systems that LIANG attacks and that need training of their own: networks, scores, codes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rood import data, zoo
from rood.analysis.matching import (
    Encoder,
    ensemble_logits,
    features,
    layers,
    logits,
    preprocessed_logits,
    score_of,
)
from rood.data.base import SHARES, ImageSet
from rood.detectors import (
    CCU,
    JEM,
    MSP,
    ODIN,
    DeepEnsemble,
    Gram,
    LayeredMahalanobis,
    UniformCrossEntropy,
)
from rood.detectors.base import Detector
from rood.errors import UnknownNameError
from rood.models import checkpoint
from rood.models.model import Model
from rood.shapes import Images

MNIST, CIFAR = "npz:$ROOD_DATA/mnist_test.npz", "npz:$ROOD_DATA/cifar10_test.npz"
DIGITS = "digits:inside"
EPS = {MNIST: 5.0, DIGITS: 5.0, CIFAR: 10.0}  # the paper's 10 is for 3,072 numbers an image
FITTED = {"fit": 0.4, "test": 0.6}  # of images that no network was trained on


@dataclass(frozen=True)
class Code:
    """What is matched, and the AUROC that the paper has after it, of each score."""

    encoder: Encoder
    paper: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    """What is attacked, through which codes, and how far."""

    network: str
    images: str
    detectors: dict[str, Detector]
    codes: dict[str, Code]
    eps: tuple[float, ...]  # the paper's, for as many numbers an image, then larger ones
    start: str = "noise"  # of the paper's numbers


@dataclass(frozen=True)
class Shelf:
    """Where networks and images are."""

    device: str
    folder: Path | None = None  # of networks, before the zoo's
    small: bool = False  # of several networks for a system the smallest
    read: dict[str, dict[str, ImageSet]] = field(default_factory=dict, repr=False)

    def load(self, name: str) -> Model:
        path = None if self.folder is None else self.folder / f"{name}.safetensors"
        found = checkpoint.load(path) if path and path.exists() else zoo.load(name)
        return found.to(self.device)

    def first(self, *choices: tuple[str, str]) -> tuple[str, str]:
        """The first network that there is, and the images it knows."""
        for name, images in () if self.small else choices[:-1]:
            try:
                self.load(name)
            except UnknownNameError:
                continue
            return name, images
        return choices[-1]

    def parts(self, images: str) -> dict[str, ImageSet]:
        """Images to fit scores on and others to attack; the networks saw neither of them."""
        if images not in self.read:
            shares = SHARES if images == DIGITS else FITTED
            self.read[images] = data.split(data.load(images), "", **shares)
        of = self.read[images]
        return {"fit": of.get("calibrate", of["fit"]), "test": of["test"]}

    def fitted(self, detector: Detector, images: str) -> Detector:
        return detector.fit(self.parts(images)["fit"].batches(250, self.device))

    def some(self, images: str) -> Images:
        return self.parts(images)["fit"].thin(2).pixels(self.device)


def jem(shelf: Shelf) -> System:
    name, images = shelf.first(("mnist-jem", MNIST), ("digits-jem", DIGITS))
    model = shelf.load(name)
    kinds = {"jem": JEM.density, "jem_softmax": JEM.softmax, "jem_gradient": JEM.mass}
    paper = {"jem": 0.559, "jem_softmax": 0.513, "jem_gradient": 0.203}
    return System(
        name,
        images,
        {kind: make(model) for kind, make in kinds.items()},
        {"logits": Code(logits(model), paper)},
        (EPS[images], 2 * EPS[images]),
        "spiral",
    )


def calibrated(shelf: Shelf) -> System:
    name, images = shelf.first(("cifar10-calibrated", CIFAR), ("digits-calibrated", DIGITS))
    model, paper = shelf.load(name), {"msp": 0.576}
    if images == CIFAR:
        code = {"input of the hidden layers": Code(layers(model, ["flat"]), paper)}
    else:
        code = {"features": Code(features(model), paper)}
    return System(name, images, {"msp": MSP(model)}, code, (EPS[images],))


def ensemble(shelf: Shelf) -> System:
    members = [shelf.load(f"cifar10-ensemble-{i}") for i in range(5)]
    code = {"logits of all": Code(ensemble_logits(members), {"deep_ensemble": 0.5})}
    return _cifar("cifar10-ensemble", {"deep_ensemble": DeepEnsemble(members)}, code)


def ccu(shelf: Shelf) -> System:
    name, images = shelf.first(("mnist-ccu", MNIST), ("digits-ccu", DIGITS))
    model = shelf.load(name)
    detector = CCU(model).fit([])  # its mixtures are in the network
    codes = {"logits": Code(logits(model)), "score": Code(score_of(detector))}
    eps = (EPS[images], 2 * EPS[images])
    return System(name, images, {"ccu": detector, "msp": MSP(model)}, codes, eps)


def odin(shelf: Shelf) -> System:
    detector = ODIN(shelf.load("cifar10-ce"), temperature=1000.0, eta=0.001)
    code = {"preprocessed logits": Code(preprocessed_logits(detector), {"odin": 0.5})}
    return _cifar("cifar10-ce", {"odin": detector}, code)


def mahalanobis(shelf: Shelf) -> System:
    model = shelf.load("cifar10-ce")
    detector = shelf.fitted(LayeredMahalanobis(model), CIFAR)
    name = "layered_mahalanobis"
    codes = {
        "layers": Code(layers(model, model.stages(shelf.some(CIFAR))), {name: 0.467}),
        "score": Code(score_of(detector), {name: 0.5}),
    }
    return _cifar("cifar10-ce", {name: detector}, codes)


def oe(shelf: Shelf) -> System:
    model = shelf.load("cifar10-oe")
    detectors: dict[str, Detector] = {
        "uniform_cross_entropy": UniformCrossEntropy(model),
        "msp": MSP(model),
    }
    code = {"logits": Code(logits(model), {"uniform_cross_entropy": 0.5})}
    return _cifar("cifar10-oe", detectors, code)


def gram(shelf: Shelf) -> System:
    name, _ = shelf.first(("cifar10-ce", CIFAR), ("cifar10-ensemble-0", CIFAR))
    model = shelf.load(name)
    # the last layer of every stage: all of them take too long to attack
    detector = shelf.fitted(Gram(model, layers=model.stages(shelf.some(CIFAR))), CIFAR)
    return _cifar(name, {"gram": detector}, {"score": Code(score_of(detector), {"gram": 0.5})})


def _cifar(network: str, detectors: dict[str, Detector], codes: dict[str, Code]) -> System:
    return System(network, CIFAR, detectors, codes, (EPS[CIFAR],))


Make = Callable[[Shelf], System]
SYSTEMS: dict[str, Make] = {
    make.__name__: make for make in (jem, calibrated, ensemble, ccu, odin, mahalanobis, oe, gram)
}
