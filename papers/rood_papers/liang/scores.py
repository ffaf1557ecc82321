"""The scores of LIANG's tables as its tables name them, and what of an image each attack copies."""

from collections.abc import Callable, Sequence
from functools import partial

from rood.analysis.matching import (
    Encoder,
    ensemble_logits,
    features,
    layers,
    logits,
    preprocessed_logits,
    score_of,
)
from rood.detectors import registry
from rood.detectors.base import Detector
from rood.detectors.deep_ensemble import DeepEnsemble
from rood.detectors.gram import Gram
from rood.detectors.layered_mahalanobis import LayeredMahalanobis
from rood.detectors.msp import MSP
from rood.detectors.odin import ODIN
from rood.detectors.uniform_cross_entropy import UniformCrossEntropy
from rood.errors import UnknownNameError
from rood.models.model import Model
from rood.shapes import Images
from rood_papers.framework.context import NotRun

Score = Callable[[Sequence[Model], Images], Detector]  # of networks, for images like these
Code = Callable[[Detector, Sequence[Model], Images], Encoder]

TEMPERATURES = (1, 10, 100, 1000)
STEPS = (0.0, 0.001, 0.002, 0.004)  # of ODIN's preprocessing, in pixel units
MAHALANOBIS = "Mahalanobis, unweighted mean over layers, PM={:g}"
GRAM = "Gram total deviation, p=1..5"
EXPOSED = "Outlier Exposure (mean logit - logsumexp)"
CALIBRATED = "Confidence-calibrated classifier (MSP)"
ENSEMBLE = "Deep Ensemble entropy"
JEM = {
    "JEM log p(x)": "jem",
    "JEM max softmax": "jem_softmax",
    "JEM -||grad_x log p(x)||_2": "jem_gradient",
}
GLOW = {"NLL": "glow", "NLL - PNG complexity": "complexity"}
OTHERS = {"CCU": "ccu", "auto-encoder": "autoencoder"}


def odin_name(temperature: int, eta: float) -> str:
    """A line of table 2."""
    return f"ODIN T={temperature} PM={eta:g}"


def _odin(temperature: int, eta: float, models: Sequence[Model], x: Images) -> Detector:
    return ODIN(models[0], temperature=float(temperature), eta=eta)


def _registered(name: str, models: Sequence[Model], x: Images) -> Detector:
    try:
        return registry.get(name)(models[0])
    except UnknownNameError as e:
        raise NotRun(f"no detector {name}") from e


SCORES: dict[str, Score] = {
    "MSP": lambda models, x: MSP(models[0]),
    **{odin_name(t, eta): partial(_odin, t, eta) for t in TEMPERATURES for eta in STEPS},
    MAHALANOBIS.format(0): lambda models, x: LayeredMahalanobis(models[0]),
    MAHALANOBIS.format(0.01): lambda models, x: LayeredMahalanobis(models[0], eta=0.01),
    # the last layer of every stage: all of them take too long to attack
    GRAM: lambda models, x: Gram(models[0], layers=models[0].stages(x)),
    EXPOSED: lambda models, x: UniformCrossEntropy(models[0]),
    CALIBRATED: lambda models, x: MSP(models[0]),
    ENSEMBLE: lambda models, x: DeepEnsemble(models),
    **{n: partial(_registered, r) for n, r in (JEM | GLOW | OTHERS).items()},
}


def _preprocessed(detector: Detector, models: Sequence[Model], x: Images) -> Encoder:
    assert isinstance(detector, ODIN)
    return preprocessed_logits(detector) if detector.eta else logits(detector.model)


def _classifier_input(detector: Detector, models: Sequence[Model], x: Images) -> Encoder:
    """What enters the hidden layers of VGG13; with no hidden layers, the features."""
    names = dict(models[0].net.named_modules())
    return layers(models[0], ("flat",)) if "flat" in names else features(models[0])


CODES: dict[str, Code] = {
    "features": lambda detector, models, x: features(models[0]),
    "classifier input": _classifier_input,
    "logits": lambda detector, models, x: logits(models[0]),
    "preprocessed logits": _preprocessed,
    "layers": lambda detector, models, x: layers(models[0], models[0].stages(x)),
    "members": lambda detector, models, x: ensemble_logits(models),
    "score": lambda detector, models, x: score_of(detector),
}


def names_of(score: str, code: str) -> tuple[str, ...]:
    """What attacks that share a code have in common."""
    if code == "score" or (code == "preprocessed logits" and not score.endswith("PM=0")):
        return code, score
    return ("logits",) if code == "preprocessed logits" else (code,)
