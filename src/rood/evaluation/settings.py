"""An audit in words: what a settings file or the command line says, and the plan it means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch

from rood import config, data, detectors
from rood._device import pick_device
from rood.attacks import registry as attacks
from rood.attacks.base import Attack
from rood.data.base import SHARES, SPLIT_RULE, ImageSet, Shape, at_once, refuse_overlap, split
from rood.data.contamination import contamination
from rood.detectors.base import Detector
from rood.errors import InputError
from rood.evaluation.manifest import full_precision
from rood.evaluation.networks import Wanted, near_chance
from rood.evaluation.plan import Plan, check_enough
from rood.evaluation.serving import of_logits, without_classes, without_labels
from rood.evaluation.time_limit import FEWEST, MOST, Choice, choose, gradient_time
from rood.goals import look_in
from rood.models import zoo
from rood.models.model import Model
from rood.threat import parse

# fixed: what is learnt differs in its last bits between batch sizes, and a run may continue another
FIT_BATCH = 128
MOST_AT_ONCE = 256  # images of a batch
DEMO_OUTSIDE = {"near": "digits:near", "patches": "digits:patches", "noise": "digits:noise"}

# one of each kind, and what most people use
FEW = ("msp", "energy", "odin", "mahalanobis", "relative_mahalanobis", "knn", "vim", "pro_entropy")

DEFAULT_LIMIT = 100
# of images that a network from elsewhere may never have seen
OTHERS_SHARES = {"fit": 0.5, "calibrate": 0.2, "test": 0.3}

QUICK_STEPS = 20  # of PGD where none are asked for: enough for an honest gradient


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The defaults are the demo: two networks that ship with rood, images without a download."""

    models: tuple[str, ...] = ("digits-ce", "digits-aloe")  # see rood.models.load
    weights: str | None = None  # tensors for a network that is made without
    mean: tuple[float, ...] = ()  # none: what the network's source says
    std: tuple[float, ...] = ()
    size: str | None = None  # of the images, "32" or "32x48"; None: what the networks take
    inside: str = "digits:inside"
    outside: dict[str, str] = field(default_factory=lambda: dict(DEMO_OUTSIDE))
    train: str | None = None  # fits the detectors; None: a part of `inside` does
    detectors: tuple[str, ...] = FEW  # "all": every one that needs nothing but the network
    options: dict[str, dict[str, object]] = field(default_factory=dict)  # by detector name
    threats: tuple[str, ...] = ("linf:0.05", "linf:0.1")
    attack: str = "pgd"
    attack_options: dict[str, object] = field(default_factory=dict)
    budget: str | None = None  # "10m": what is not said is chosen to fit that time
    limit: int | None = DEFAULT_LIMIT  # images a set, drawn evenly; None: all
    skip_bad: bool = False
    device: str = "auto"
    seed: int = 0
    batch_size: int | None = None  # None: what is quick for images of this size


def prepare(
    s: AuditSettings, earlier: Mapping[str, Any] | None = None
) -> tuple[Plan, dict[str, Any]]:
    """Load, fit, and say what is to be done; also what the manifest must tell about it.

    earlier: what the manifest of a run to go on with says about the time it was given.
    """
    start = perf_counter()
    threats = [parse(t) for t in s.threats]
    makers = _makers(s)
    attack = _attack(s)
    device = pick_device(s.device)
    networks, shape = _wanted(s).load()
    parts, about = _divided(s, shape)
    outside = {
        name: _outside(s, spec, shape, list(parts.values())) for name, spec in s.outside.items()
    }
    fitted, told = _fitted(s, makers, networks, parts, device)
    limit = s.limit
    batch_size = s.batch_size or _at_once(shape, device, MOST_AT_ONCE)
    if s.budget is not None:
        some = parts["test"].thin(min(batch_size, FEWEST))
        choice = _earlier(s, earlier) or _choice(s, fitted, some, start)
        attack, limit = choice.attack, choice.limit
        fitted = {m: {n: ds[n] for n in ds if n in choice.detectors} for m, ds in fitted.items()}
        about["budget"] = choice.to_dict()
        told["skipped"] += [f"{n}: does not fit into {s.budget}" for n in choice.dropped]
    plan = Plan(
        detectors=fitted,
        calibrate=parts["calibrate"],
        inside=parts["test"].thin(limit),
        outside={n: images.thin(limit) for n, images in outside.items()},
        threats=threats,
        attack=attack,
        seed=s.seed,
        batch_size=s.batch_size,
    )
    return plan, about | {k: v for k, v in told.items() if v}


def _makers(s: AuditSettings) -> dict[str, Any]:
    makers = {name: detectors.registry.get(name) for name in _detector_names(s.detectors)}
    for name in s.options:
        if name not in makers:
            raise InputError(f"expected options for {', '.join(makers)}, got some for {name!r}")
    return makers


def _attack(s: AuditSettings) -> Attack:
    quick = {"steps": QUICK_STEPS} if s.attack == "pgd" else {}
    return _built(attacks.get(s.attack), quick | s.attack_options, "attack_options")


def _wanted(s: AuditSettings) -> Wanted:
    return Wanted(
        specs=s.models, inside=s.inside, weights=s.weights, mean=s.mean, std=s.std, size=s.size
    )


def _fitted(
    s: AuditSettings,
    makers: Mapping[str, Any],
    networks: Mapping[str, tuple[Model, dict[str, Any]]],
    parts: Mapping[str, ImageSet],
    device: torch.device,
) -> tuple[dict[str, dict[str, Detector]], dict[str, list[str]]]:
    """The detectors that can serve, fitted, by network; and what is to be told about the others."""
    fitted: dict[str, dict[str, Detector]] = {}
    told: dict[str, list[str]] = {"notes": [], "skipped": []}
    for m, (model, card) in networks.items():
        _check_classes(m, model.to(device), parts["fit"])
        made = {
            n: _built(make, s.options.get(n, {}), f"options.{n}", model)
            for n, make in makers.items()
        }
        kept, unlabelled = without_labels(made, parts["fit"])
        kept, classless = without_classes(kept, parts["fit"], model.classes)
        kept, featureless = of_logits(kept, parts["fit"], m) if card["logits_only"] else (kept, ())
        check_enough(parts["calibrate"])  # before what takes long
        size = _at_once(parts["fit"].shape, device, FIT_BATCH)
        with full_precision():
            detectors.fit_all(kept.values(), parts["fit"].batches(size, device))
        fitted[m] = kept
        left_out = (*unlabelled, *classless, *featureless)
        told["skipped"] += [t for t in left_out if t not in told["skipped"]]
        told["notes"] += [f"{m}: {note}" for note in card["notes"]]
        told["notes"] += near_chance(model, parts["test"], m, size)
    return fitted, told


def _choice(
    s: AuditSettings,
    fitted: Mapping[str, Mapping[str, Detector]],
    images: ImageSet,
    start: float,
) -> Choice:
    """What fits into the time asked for; what the caller has said stays as it was said."""
    assert s.budget is not None
    each: dict[str, tuple[float, int]] = {}
    for ds in fitted.values():
        for n, d in ds.items():
            x = images.pixels().to(d.model.mean)
            before, _ = each.get(n, (0.0, 0))
            each[n] = (before + gradient_time(d, x), len(look_in(d).variants))
    attack, limit = _said(s)
    return choose(
        s.budget,
        perf_counter() - start,  # the time that measuring took is gone too
        each,
        sets=1 + len(s.outside),
        threats=len(s.threats),
        attack=attack,
        limit=limit,
    )


def _earlier(s: AuditSettings, facts: Mapping[str, Any] | None) -> Choice | None:
    """What a run with the same time has chosen; what is said now goes before it."""
    if not facts or facts.get("asked") != s.budget:
        return None
    choice = Choice.from_dict(facts)
    attack, limit = _said(s)
    return replace(choice, attack=attack or choice.attack, limit=limit or choice.limit)


def _said(s: AuditSettings) -> tuple[Attack | None, int | None]:
    """The attack and the images a set, where the caller has named them."""
    named = s.attack != "pgd" or bool(s.attack_options)
    return _attack(s) if named else None, None if s.limit == DEFAULT_LIMIT else s.limit


def _outside(s: AuditSettings, spec: str, shape: Shape, inside: list[ImageSet]) -> ImageSet:
    """A set of OOD images, with notes on what makes it an unfair one."""
    images = data.load(spec, shape=shape, limit=_at_most(s), skip_bad=s.skip_bad)
    if spec == s.inside:
        return images  # `rood attack` asks for the in-distribution images themselves
    return replace(images, notes=(*images.notes, *contamination(inside, images)))


def _at_most(s: AuditSettings) -> int | None:
    """Images of a set that are read: the time budget chooses among more than are used."""
    return MOST if s.budget is not None and s.limit in (None, DEFAULT_LIMIT) else s.limit


def _at_once(shape: Shape, device: torch.device, most: int) -> int:
    return at_once(shape, most) if device.type == "cpu" else most


def _detector_names(wanted: Sequence[str]) -> Sequence[str]:
    if tuple(wanted) != ("all",):
        return wanted or FEW
    names = detectors.registry.names()
    return [n for n in names if not hasattr(detectors.registry.get(n), "example")]


def _divided(s: AuditSettings, shape: Shape) -> tuple[dict[str, ImageSet], dict[str, Any]]:
    """Which in-distribution images fit, calibrate and test."""
    inside = data.load(s.inside, shape=shape, skip_bad=s.skip_bad)
    if s.train is None:
        # ours have seen a part of their images already, and it must stay the part that fits
        ours = any(n in zoo.names() or n.endswith(".safetensors") for n in s.models)
        parts = split(inside, "", **(SHARES if ours else OTHERS_SHARES))
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


def _check_classes(name: str, model: Model, fit: ImageSet) -> None:
    if fit.labels is not None and int(fit.labels.max()) >= model.classes:
        raise InputError(
            f"expected labels 0 to {model.classes - 1} for {name}, got up to "
            f"{int(fit.labels.max())}: are these the network's classes?"
        )


def _built(make: Any, options: Mapping[str, object], where: str, *args: Any) -> Any:
    """make(*args, **options), each option checked against the constructor's annotations."""
    return make(*args, **config.arguments(make, options, where, but={"compare"}))
