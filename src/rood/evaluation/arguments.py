"""What Python code gives `rood.audit`, made a plan; every mistake is refused in one sentence."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rood import detectors as registered
from rood.attacks import registry as attacks
from rood.attacks.base import Attack
from rood.data.base import SPLIT_RULE, ImageSet, Shape
from rood.data.given import AnyImages, image_set
from rood.detectors.base import Detector
from rood.device import pick_device
from rood.errors import InputError, NotFittedError, RoodError, expect, first_line
from rood.evaluation import diagnosis
from rood.evaluation.deadline import Deadline, seconds
from rood.evaluation.diagnosis import Setup, Subject
from rood.evaluation.division import divide
from rood.evaluation.open_set import hold_out, known_outputs
from rood.evaluation.plan import Named, Plan, as_method, as_severity, check_enough
from rood.evaluation.prepare import (
    MOST_KNOWN,
    check_classes,
    fit_detectors,
    guessed_size,
    made_attack,
    made_threats,
    servable,
)
from rood.evaluation.rows import SIDES
from rood.evaluation.settings import AuditSettings
from rood.models.load import find_network, has_card, load_network
from rood.models.model import Model
from rood.registry import unknown
from rood.threat import Threat

AnyDetectors: TypeAlias = str | Detector | Sequence[str | Detector] | Mapping[str, str | Detector]
AnyOutside: TypeAlias = AnyImages | list[AnyImages] | Mapping[str, AnyImages]
AnyThreats: TypeAlias = Threat | str | float | Sequence[Threat | str | float]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What `rood.audit` was given, as it was given; `plan` makes sense of it."""

    model: object
    detectors: object
    inside: object
    outside: object
    threats: object
    train: object = None
    calibrate: object = None
    groups: object = None
    open_set: object = ()
    corruptions: object = None
    attack: object = None
    certify: object = None
    sides: object = SIDES
    limit: object = None
    name: object = None
    seed: object = 0
    batch_size: object = None
    device: str | None = None
    trust: bool = False
    anyway: bool = False
    time_limit: object = None

    def plan(self) -> Plan:
        """Load what is named, divide the ID images, and fit the detectors that are not."""
        limit = _number("limit", self.limit)
        seed, batch_size = _number("seed", self.seed), _number("batch_size", self.batch_size)
        if not isinstance(self.model, str | Model):
            raise _no_network(self.model)
        deadline = _deadline(self.time_limit)
        threats, attack = made_threats(self.threats), _attack(self.attack)
        as_severity(self.corruptions)
        chosen = _chosen(self.detectors, fits=self.train is not None)
        network = _network(self.model, self.name, self.trust)
        inside, outside = self._sets(network.shape, limit)
        model, card = network.taking(inside.shape, self.device)
        if network.shape is None:
            size = guessed_size(inside, "a shape to rood.data.load")
            card = {**card, "notes": [*card["notes"], *size]}
        check_images(model, inside)
        if not (asked := _held_out(self.open_set)):
            check_classes(network.name, model, inside)
        fresh = {n for n, d in chosen.items() if isinstance(d, str) or not fitted(d)}
        parts = self._parts(inside, fit=bool(fresh), ours=network.ours)
        open_set, parts, outside = hold_out(asked, parts, outside)
        model, card = known_outputs(open_set, network.name, model, card, parts["test"])
        made = {n: _made(n, thing, model, cut=bool(asked)) for n, thing in chosen.items()}
        setup = Setup(
            subjects=[Subject(network.name, model, parts["test"], card)],
            inside=parts["test"],
            outside=outside,
            open_set=open_set,
            fit=parts.get("fit"),
            calibrate=parts["calibrate"],
            detectors={network.name: made},
            threats=threats,
            attack=attack,
            limit=limit,
        )
        made_plan = self._plan(setup, fresh, seed or 0, batch_size)
        if open_set is None:
            named = self._named(list(outside), ours=network.ours, fits=bool(fresh))
            made_plan = replace(made_plan, named=named)
        return replace(made_plan, deadline=deadline)

    def _named(self, outside: Sequence[str], *, ours: bool, fits: bool) -> Named:
        """What is known of how another loads the same images."""
        given = self.outside if isinstance(self.outside, Mapping) else _each_set(self.outside)
        sets = given.values() if isinstance(given, Mapping) else given
        limit = _number("limit", self.limit)
        return Named(
            inside=_spec(self.inside),
            outside={n: _spec(x) for n, x in zip(outside, sets, strict=True)},
            train=None if self.train is None else _spec(self.train),
            calibrate=None if self.calibrate is None else _spec(self.calibrate),
            ours=ours,
            fits=fits,
            read=limit,
            limit=limit,
        )

    def _plan(self, setup: Setup, fresh: set[str], seed: int, batch_size: int | None) -> Plan:
        """The plan of a setup that the checks let through."""
        found = list(diagnosis.examine(setup))
        diagnosis.refuse(found, anyway=self.anyway)
        kept, skipped = _fit(setup, fresh)
        assert setup.calibrate is not None
        about = {
            "split": _told(setup, self.train),
            "notes": diagnosis.notes(found, setup.outside),
            "skipped": skipped,
            "open_set": {} if setup.open_set is None else setup.open_set.about(),
            "diagnosis": [asdict(one) for one in found],
            "warnings": [
                *(one.sentence() for one in found if one.status != "ok"),
                *(f"skipped {text}" for text in skipped),
            ],
        }
        outside = diagnosis.with_notes(found, setup.outside)
        return Plan(
            detectors={setup.subjects[0].name: kept},
            calibrate=setup.calibrate,
            inside=setup.inside.thin(setup.limit),
            # where classes are held out, each class that is predicted belongs to a score
            every=None if setup.open_set else setup.inside.thin(MOST_KNOWN),
            outside=outside,
            open_set=setup.open_set,
            corruptions=as_severity(self.corruptions),
            threats=setup.threats,
            attack=setup.attack,
            certify=as_method(self.certify),
            sides=(self.sides,) if isinstance(self.sides, str) else self.sides,  # type: ignore[arg-type]
            seed=seed,
            batch_size=batch_size,
            about={what: said for what, said in about.items() if said},
        )

    def _sets(self, shape: Shape | None, limit: int | None) -> tuple[ImageSet, dict[str, ImageSet]]:
        """The ID images and the OOD sets, all of one shape, with their groups."""
        groups = _group_ids(self.groups)
        inside = image_set(self.inside, "inside", shape=shape)
        if self.outside is None and not _held_out(self.open_set):
            raise InputError("expected OOD images as outside, or classes as open_set, got neither")
        sets = _outside_sets({} if self.outside is None else self.outside, limit, inside.shape)
        for name in groups:
            if name not in ("inside", *sets):
                raise unknown("image set", name, ["inside", *sets])
        outside = {n: _grouped(images, n, groups) for n, images in sets.items()}
        return _grouped(inside, "inside", groups), outside

    def _parts(self, inside: ImageSet, *, fit: bool, ours: bool) -> dict[str, ImageSet]:
        train, calibrate = (
            None if images is None else image_set(images, name, shape=inside.shape)
            for name, images in (("train", self.train), ("calibrate", self.calibrate))
        )
        return divide(inside, train, calibrate, fit=fit, ours=ours)


def _told(setup: Setup, train: object) -> dict[str, Any]:
    """How the images were divided, for the manifest."""
    told: dict[str, Any] = {"rule": SPLIT_RULE}
    if setup.fit is not None:
        told["fit on"] = "part of inside" if train is None else setup.fit.name
    parts = {"fit": setup.fit, "calibrate": setup.calibrate, "test": setup.inside}
    return told | {n: len(images) for n, images in parts.items() if images is not None}


# --- the network


@dataclass(frozen=True)
class _Network:
    """A network, or one of somebody else's that is built when the shape of images is known."""

    name: str
    found: Any  # a Model, or a ForeignNetwork
    shape: Shape | None = None  # that its card states
    ours: bool = False  # whether rood trained it
    card: Mapping[str, Any] = field(default_factory=lambda: {"logits_only": False, "notes": []})

    def taking(self, shape: Shape, device: str | None) -> tuple[Model, Mapping[str, Any]]:
        """The network for images of this shape, and its card."""
        if isinstance(self.found, Model):
            model = self.found
            return model if device is None else model.to(pick_device(device)), self.card
        model, card = self.found.build(shape)
        return model.to(pick_device(device or "auto")), card


def _network(given: str | Model, name: object, trust: bool) -> _Network:
    expect(isinstance(name, str | None), "a word as the name of the network", _kind(name))
    if isinstance(given, str):
        short = str(name or Path(given).stem)
        if not has_card(given):
            found = find_network(given, trust=trust)
            return _Network(short, found, found.shape)
        model, card = load_network(given)
        c, h, w = card["shape"]
        return _Network(short, model.to(pick_device("auto")), (c, h, w), ours=True, card=card)
    if training := [n for n, m in given.named_modules() if m.training]:
        raise InputError(
            f"expected a network in eval mode, got one with {training[0] or 'all of it'} in "
            "training mode: call model.eval()"
        )
    return _Network(str(name or "model"), given)


def _no_network(given: object) -> InputError:
    kind = _kind(given)
    if isinstance(given, Detector):
        return InputError(f"expected the network first, got the detector {kind}: swap the two")
    return InputError(
        f"expected a Model or the name of a network, got {kind}: rood.wrap(net, mean=(...), "
        "std=(...)) makes a Model, with the mean and std that the network was trained with"
    )


def check_images(model: Model, images: ImageSet) -> None:
    """Refuse images that the network cannot take, in the words of the layer that refused."""
    few = images.take(torch.arange(min(2, len(images)))).pixels().to(model.mean)
    try:
        with torch.no_grad():
            model(few)
    except RoodError:
        raise
    except Exception as e:  # layers of others raise anything
        raise InputError(
            f"expected images that the network takes, got {images.shape} as {images.name!r}, "
            f"where it fails: {first_line(e)[:200].rstrip('.')}"
        ) from e


# --- detectors


def _chosen(given: object, *, fits: bool) -> dict[str, str | Detector]:
    """Detectors or their registry names, by the name that each gets in the results."""
    if isinstance(given, Mapping):
        pairs = [(name, thing) for name, thing in given.items()]
        for name, _ in pairs:
            expect(isinstance(name, str) and name != "", "a name for every detector", repr(name))
    else:
        pairs = [(_detector_name(thing), thing) for thing in _each(given)]
    found: dict[str, str | Detector] = {}
    for name, thing in pairs:
        if name in found:
            raise InputError(
                f"expected each detector to have its own name, got {name!r} twice: "
                "give a mapping of names to detectors"
            )
        found[name] = _checked(thing, fits)
    expect(bool(found), "at least one detector to audit", "none")
    return found


def _each(given: object) -> Iterable[object]:
    if given == "all":  # all that need nothing but the network
        names = registered.registry.names()
        return [n for n in names if not hasattr(registered.registry.get(n), "example")]
    if isinstance(given, str):
        return [name.strip() for name in given.split(",") if name.strip()]
    several = isinstance(given, Iterable) and not isinstance(given, Detector | type)
    return given if several else [given]  # type: ignore[return-value]


def _detector_name(thing: object) -> str:
    """The registry's where there is one: "knn" for KNN(model)."""
    if isinstance(thing, str):
        return thing
    package, _, file = type(thing).__module__.rpartition(".")
    if package == registered.__name__:
        return file
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(thing).__name__).lower()


def _checked(thing: object, fits: bool) -> str | Detector:
    if isinstance(thing, str):
        make = registered.registry.get(thing)
        if hasattr(make, "example"):
            raise InputError(
                f"expected a detector that needs nothing but the network, got the name {thing!r}: "
                f"give an instance of rood.detectors.{getattr(make, '__name__', thing)}"
            )
        return thing
    if not isinstance(thing, Detector):
        do = f": write {thing.__name__}(model)" if isinstance(thing, type) else ""
        raise InputError(f'expected a detector, or a name such as "knn", got {_kind(thing)}{do}')
    if not fits and not fitted(thing):
        raise NotFittedError(
            f"expected fitted detectors, got {thing!r}: call fit(), or give train= to rood.audit"
        )
    return thing


def _made(name: str, thing: str | Detector, model: Model, *, cut: bool) -> Detector:
    if isinstance(thing, str):
        return registered.registry.get(thing)(model)
    if thing.model is not model and cut:
        raise InputError(
            f"expected names of detectors where classes are held out, got {thing!r}, whose network "
            "has their outputs too: give its name"
        )
    if thing.model is not model:
        raise InputError(f"expected detector {name!r} to be built on the model given")
    return thing


def fitted(detector: Detector) -> bool:
    """Whether it can score."""
    try:
        detector.check_fitted()
    except NotFittedError:
        return False
    return True


def _fit(setup: Setup, fresh: set[str]) -> tuple[dict[str, Detector], list[str]]:
    """Fit the fresh ones; those that the images can serve, and a sentence about the others."""
    (one,) = setup.subjects
    made, fit, logits_only = setup.detectors[one.name], setup.fit, one.card["logits_only"]
    if fit is None:
        return dict(made), []
    new = {n: d for n, d in made.items() if n in fresh}
    kept, skipped = servable(new, fit, one.name, logits_only=logits_only) if new else ({}, [])
    check_enough(setup.calibrate or setup.inside)  # before what takes long
    if kept:
        fit_detectors(kept.values(), fit)
    return {n: d for n, d in made.items() if n in kept or n not in fresh}, skipped


# --- images


def _outside_sets(given: object, limit: int | None, shape: Shape) -> dict[str, ImageSet]:
    """The OOD sets by name: of one set, of several in a list, or of a mapping."""
    if isinstance(given, Mapping):
        for name in given:
            expect(isinstance(name, str), "a name for every set of outside", repr(name))
        return {n: image_set(x, n, shape=shape, limit=limit) for n, x in given.items()}
    found: dict[str, ImageSet] = {}
    each = _each_set(given)
    for i, images in enumerate(each):
        usual = "outside" if len(each) == 1 else f"outside-{i + 1}"
        made = image_set(images, usual, shape=shape, limit=limit)
        name = _last(images) or made.name
        if name in found:
            raise InputError(
                f"expected each set of outside to have its own name, got {name!r} twice: "
                "give a mapping of names to sets"
            )
        found[name] = made
    return found


def _each_set(given: object) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _spec(images: object) -> str:
    """The words that name images; "" where the images themselves were given."""
    return os.fspath(images) if isinstance(images, str | os.PathLike) else ""


def _last(images: object) -> str:
    """The last part of a spec or path, as the command names it."""
    if not isinstance(images, str | os.PathLike):
        return ""
    text = os.fspath(images)
    return Path(text.partition(":")[2] or text).resolve().stem


def _grouped(images: ImageSet, name: str, groups: Mapping[str, tuple[str, ...]]) -> ImageSet:
    return replace(images, groups=groups[name]) if name in groups else images


def _group_ids(groups: object) -> dict[str, tuple[str, ...]]:
    """One word per image, by set."""
    if not isinstance(groups, Mapping | None):
        what = "groups by set, such as {'inside': [...]}"
        raise InputError(f"expected {what}, got {_kind(groups)}")
    found: dict[str, tuple[str, ...]] = {}
    for name, ids in (groups or {}).items():
        plain = ids.tolist() if isinstance(ids, Tensor) else ids
        if isinstance(plain, str) or not isinstance(plain, Iterable):
            raise InputError(f"expected one group per image of {name!r}, got {plain!r:.50}")
        found[str(name)] = tuple("" if g is None else str(g) for g in plain)
    return found


# --- the rest


def _attack(given: object) -> Attack:
    """An attack; the one called so; of `worst_of` the tier called so; None: its quick tier."""
    if isinstance(given, Attack):
        return given
    if isinstance(given, str | None):
        return made_attack(AuditSettings(attack=given))
    do = f": write {given.__name__}()" if isinstance(given, type) else ""
    names = ", ".join(attacks.names())
    raise InputError(
        f"expected an attack, one of {names}, or a tier (quick, standard, full), "
        f"got {_kind(given)}{do}"
    )


def _deadline(asked: object) -> Deadline | None:
    if asked is None:
        return None
    text = asked if isinstance(asked, str) else repr(asked)
    seconds(text)  # refuses what is no time
    return Deadline(text, monotonic())


def _held_out(given: object) -> tuple[object, ...]:
    """The classes to hold out: one, several, or as the command has them, "0,3,7"."""
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(word.strip() for word in given.split(",") if word.strip())
    return tuple(given) if isinstance(given, Iterable) else (given,)


def _number(what: str, given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    raise InputError(f"expected a whole number as {what}, got {given!r:.50}")


def _kind(given: object) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
