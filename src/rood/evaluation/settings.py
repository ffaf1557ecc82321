"""An audit in words: what a settings file or the command line says, and the plan it means."""

import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import torch

from rood import config, data, detectors
from rood.attacks import registry as attacks
from rood.data.base import ImageSet, Shape, refuse_overlap, split
from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError
from rood.evaluation.audit import SPLIT_RULE
from rood.evaluation.manifest import full_precision
from rood.evaluation.plan import Plan
from rood.models import checkpoint, zoo
from rood.models.model import Model
from rood.registry import unknown
from rood.threat import parse
from rood.training.recipes import SHARES

# fixed: what is learnt differs in its last bits between batch sizes, and a run may continue another
FIT_BATCH = 128
DEMO_OUTSIDE = {"near": "digits:near", "patches": "digits:patches", "noise": "digits:noise"}

# one of each kind, and what most people use
FEW = ("msp", "energy", "odin", "mahalanobis", "relative_mahalanobis", "knn", "vim", "pro_entropy")

QUICK_STEPS = 20  # of PGD where none are asked for: enough for an honest gradient


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The defaults are the demo: two networks that ship with rood, images without a download."""

    models: tuple[str, ...] = ("digits-ce", "digits-aloe")  # zoo names or checkpoint files
    inside: str = "digits:inside"
    outside: dict[str, str] = field(default_factory=lambda: dict(DEMO_OUTSIDE))
    train: str | None = None  # fits the detectors; None: a part of `inside` does
    detectors: tuple[str, ...] = FEW  # "all": every one that needs nothing but the network
    options: dict[str, dict[str, object]] = field(default_factory=dict)  # by detector name
    threats: tuple[str, ...] = ("linf:0.05", "linf:0.1")
    attack: str = "pgd"
    attack_options: dict[str, object] = field(default_factory=dict)
    limit: int | None = 100  # images a set, drawn evenly; None: all
    skip_bad: bool = False
    device: str = "auto"
    seed: int = 0
    batch_size: int = 256


def prepare(s: AuditSettings) -> tuple[Plan, dict[str, Any]]:
    """Load, fit, and say what is to be done; also what the manifest must tell about it."""
    threats = [parse(t) for t in s.threats]
    makers = {name: detectors.registry.get(name) for name in _detector_names(s.detectors)}
    for name in s.options:
        if name not in makers:
            raise InputError(f"expected options for {', '.join(makers)}, got some for {name!r}")
    quick = {"steps": QUICK_STEPS} if s.attack == "pgd" else {}
    attack = _built(attacks.get(s.attack), quick | s.attack_options, "attack_options")
    device = pick_device(s.device)
    networks = {_short_name(name, s.models): _network(name) for name in s.models}
    models = {name: model.to(device) for name, (model, _) in networks.items()}
    shape = _common_shape({name: card for name, (_, card) in networks.items()})
    parts, about = _divided(s, shape)
    outside = {
        name: data.load(spec, shape=shape, limit=s.limit, skip_bad=s.skip_bad)
        for name, spec in s.outside.items()
    }
    _check_classes(models, parts["fit"])
    fitted: dict[str, dict[str, Detector]] = {}
    for m, model in models.items():
        fitted[m] = {
            n: _built(make, s.options.get(n, {}), f"options.{n}", model)
            for n, make in makers.items()
        }
        with full_precision():
            detectors.fit_all(fitted[m].values(), parts["fit"].batches(FIT_BATCH, device))
    plan = Plan(
        detectors=fitted,
        calibrate=parts["calibrate"],
        inside=parts["test"].thin(s.limit),
        outside=outside,
        threats=threats,
        attack=attack,
        seed=s.seed,
        batch_size=s.batch_size,
    )
    return plan, about


def _detector_names(wanted: Sequence[str]) -> Sequence[str]:
    if tuple(wanted) != ("all",):
        return wanted or FEW
    names = detectors.registry.names()
    return [n for n in names if not hasattr(detectors.registry.get(n), "example")]


def _divided(s: AuditSettings, shape: Shape) -> tuple[dict[str, ImageSet], dict[str, Any]]:
    """Which in-distribution images fit, calibrate and test."""
    inside = data.load(s.inside, shape=shape, skip_bad=s.skip_bad)
    if s.train is None:
        parts = split(inside, "", **SHARES)  # as the networks of the zoo were trained
        fit_on = f"part of {s.inside}"
    else:
        parts = split(inside, "threshold", calibrate=0.25, test=0.75)
        parts["fit"] = data.load(s.train, shape=shape, skip_bad=s.skip_bad)
        fit_on = s.train
        refuse_overlap(parts["fit"], parts["test"], "--train", "the test images")
        refuse_overlap(parts["fit"], parts["calibrate"], "--train", "the threshold's images")
    counts = {name: len(parts[name]) for name in ("fit", "calibrate", "test")}
    told: dict[str, Any] = {"rule": SPLIT_RULE, "fit on": fit_on, **counts}
    if notes := parts["fit"].notes:
        told["notes on fit"] = list(notes)
    return parts, {"split": told}


def _check_classes(models: Mapping[str, Model], fit: ImageSet) -> None:
    if fit.labels is None:
        raise InputError(
            f"expected labelled images to fit on, got none in {fit.name!r}: "
            "put them in one folder a class, or name such a folder with --train"
        )
    for name, model in models.items():
        if int(fit.labels.max()) >= model.classes:
            raise InputError(
                f"expected labels 0 to {model.classes - 1} for {name}, got up to "
                f"{int(fit.labels.max())}: are these the network's classes?"
            )


def _network(name: str) -> tuple[Model, dict[str, Any]]:
    """A network of the zoo, or of a checkpoint file, with its card."""
    if name in zoo.names():
        return zoo.load(name), zoo.card(name)
    if name.endswith(".safetensors"):
        return checkpoint.load(name), checkpoint.read_card(name)
    if Path(name).suffix or Path(name).name != name:
        raise InputError(f"expected a checkpoint of rood, .safetensors, got {name!r}")
    raise unknown("trained network", name, zoo.names())


def _short_name(name: str, others: Sequence[str]) -> str:
    """A checkpoint goes by its file name, as long as only one network is called so."""
    alike = [n for n in others if Path(n).stem == Path(name).stem]
    return name if len(set(alike)) > 1 else Path(name).stem


def _common_shape(cards: Mapping[str, Mapping[str, Any]]) -> Shape:
    shapes = {name: tuple(card["shape"]) for name, card in cards.items()}
    if len(set(shapes.values())) > 1:
        raise InputError(f"expected networks that take images of one shape, got {shapes}")
    c, h, w = next(iter(shapes.values()))
    return c, h, w


def pick_device(name: str) -> torch.device:
    """The device called so; "auto" is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        raise CapabilityError(
            f"expected a device such as cpu or cuda, got {name!r}: {_first(e)}"
        ) from e
    return device


def _built(make: Any, options: Mapping[str, object], where: str, *args: Any) -> Any:
    """make(*args, **options), each option checked against the constructor's annotations."""
    hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    fields = [
        (p.name, hints.get(p.name, object), p.default)
        for p in inspect.signature(make).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name != "compare"
    ]
    checked: Any = config.build(make_dataclass("Options", fields), options, where)
    return make(*args, **asdict(checked))


def _first(e: BaseException) -> str:
    return str(e).splitlines()[0] if str(e) else type(e).__name__
