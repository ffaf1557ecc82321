"""What an audit will do: detectors, images, threats, and how they divide into tasks."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from rood import corruptions
from rood.attacks.base import Attack
from rood.attacks.worst_of import WorstOf
from rood.certify import METHODS, Method
from rood.corruptions.base import SEVERITIES
from rood.data.base import ImageSet, at_once
from rood.data.corrupt import corrupted
from rood.detectors.base import Detector
from rood.errors import InputError, expect
from rood.evaluation.checks.base import Side
from rood.evaluation.deadline import Deadline
from rood.evaluation.open_set import OpenSet
from rood.evaluation.rows import CORRUPTED, SIDES
from rood.models.model import Model
from rood.threat import L2, Linf, Threat

Role = Literal["inside", "outside"]
EVERY = "every inside"  # the images on which the accuracy is measured
LEAST = 20  # ID images needed for a 95 % threshold


@dataclass(frozen=True, kw_only=True)
class Named:
    """What the images of a plan are called, and how they are read: for loading the same again."""

    inside: str  # a spec; "" for images that were given as such
    outside: dict[str, str]
    train: str | None = None  # None: a part of `inside` fits
    calibrate: str | None = None  # None: a part of `inside` sets the threshold
    groups: dict[str, str] = field(default_factory=dict)
    skip_bad: bool = False
    ours: bool = False  # whether `divide` keeps apart what networks of rood were trained on
    fits: bool = True  # whether a part of the images fits detectors
    read: int | None = None  # OOD images to read of a set, evenly spaced; of these
    limit: int | None = None  # as many are used
    kept: dict[str, int] = field(default_factory=dict)  # of "fit" and "calibrate", see `thinned`


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the numbers of an audit depend on."""

    detectors: Mapping[str, Mapping[str, Detector]]  # by model name, then by detector name; fitted
    calibrate: ImageSet  # ID images that set the threshold and are never tested on
    inside: ImageSet
    outside: Mapping[str, ImageSet]
    every: ImageSet | None = None  # ID images for the accuracy, which costs little; None: `inside`
    threats: Sequence[Threat]
    attack: Attack = field(default_factory=lambda: WorstOf(tier="quick"))
    sides: Sequence[Side] = SIDES  # none: nothing is attacked, only certified
    certify: Method | None = None  # bounds that no attack can pass
    seed: int = 0
    batch_size: int | None = None  # changes speed, not scores; None: as memory allows
    deadline: Deadline | None = None  # changes which rows there are, not the rows
    left_out: Sequence[tuple[str, str]] = ()  # detectors and budgets that a time limit left out
    about: Mapping[str, Any] = field(default_factory=dict)  # for the manifest: split, notes, ...
    named: Named | None = None
    open_set: OpenSet | None = None  # the classes held out, which are an OOD set
    corruptions: int | None = None  # the severity at which false alarms are counted too
    keep: bool = False  # whether every attacked image is kept, in 8 bits, with its score

    def __post_init__(self) -> None:
        if not self.detectors or not all(self.detectors.values()):
            raise InputError("expected at least one detector to audit, got none")
        if not self.outside:
            raise InputError("expected at least one out-of-distribution set, got none")
        names = [*self.detectors, *(n for ds in self.detectors.values() for n in ds), *self.outside]
        if not all(names):
            raise InputError("expected models, detectors and image sets with a name, got ''")
        if taken := sorted(n for n in self.outside if role_of(n) == "inside"):
            raise InputError(f"expected another name for the out-of-distribution set {taken[0]!r}")
        known = sorted(self.sides) == sorted(set(self.sides) & set(SIDES))
        if not known or not (self.sides or self.certify):
            raise InputError(f"expected sides among {', '.join(SIDES)}, once, got {self.sides}")
        if self.certify is not None and not self.certifiable():
            got = ", ".join(map(str, self.threats)) or "none"
            raise InputError(f"expected linf or l2 budgets to certify, got {got}: add one")
        check_numbers(self.seed, self.batch_size)
        as_severity(self.corruptions)
        for name, images in self.sets().items():
            if len(images) == 0:
                raise InputError(f"expected images in {name!r}, got none")
        check_enough(self.calibrate)
        for name in ("inside", *self.outside):
            check_groups(self.sets()[name], name)

    def sets(self) -> dict[str, ImageSet]:
        """Every image set by name."""
        own = {"calibrate": self.calibrate, "inside": self.inside}
        return own | self._corrupted | dict(self.outside)

    @cached_property
    def _corrupted(self) -> dict[str, ImageSet]:
        """The ID images under each corruption."""
        if (severity := self.corruptions) is None:
            return {}
        plain = replace(self.inside, notes=())
        kinds = corruptions.names()
        return {f"{CORRUPTED}{k}:{severity}": corrupted(plain, k, severity) for k in kinds}

    def images(self, dataset: str) -> ImageSet:
        """The image set of a task."""
        known = self.inside if self.every is None else self.every
        return known if dataset == EVERY else self.sets()[dataset]

    def model(self, name: str) -> Model:
        """The network with this name."""
        return next(iter(self.detectors[name].values())).model

    def ordered_threats(self) -> list[Threat]:
        """Norm by norm, the smaller budget first, each one once."""
        return list(
            {str(t): t for t in sorted(self.threats, key=lambda t: (t.norm, t.eps))}.values()
        )

    def attack_name(self) -> str:
        """As rows have it: the registry's spelling, random_search for RandomSearch."""
        return spelled(type(self.attack).__name__)

    def attacked(self) -> list[tuple[str, Threat]]:
        """The image sets that are attacked, threat by threat."""
        inside = ["inside"] if {"inside", "both"} & set(self.sides) else []
        outside = list(self.outside) if {"outside", "both"} & set(self.sides) else []
        return [(name, t) for t in self.ordered_threats() for name in inside + outside]

    def bounded(self) -> list[tuple[str, Threat]]:
        """The image sets whose scores are bounded, threat by threat."""
        names = ["inside", *self.outside] if self.certify is not None else []
        return [(name, t) for t in self.certifiable() for name in names]

    def certifiable(self) -> list[Threat]:
        """The budgets within which scores can be bounded."""
        return [t for t in self.ordered_threats() if isinstance(t, Linf | L2)]

    def largest(self) -> list[Threat]:
        """The largest budget of each norm, at which attacks are examined further."""
        return list({t.norm: t for t in self.ordered_threats()}.values())

    def opposite(self, dataset: str) -> str:
        """The set of the other side, from which the attack without a budget starts."""
        return min(self.outside) if dataset == "inside" else "inside"

    def at_once(self) -> int:
        """Images per batch and per task."""
        return self.batch_size or at_once(self.inside.shape)

    def shards(self, dataset: str, size: int | None = None) -> list[tuple[int, int]]:
        """Start and stop of the images of every task on a set."""
        n, size = len(self.images(dataset)), size or self.at_once()
        return [(start, min(start + size, n)) for start in range(0, n, size)]

    def settings(self) -> dict[str, Any]:
        """What runs that share a folder must have in common: all but speed."""
        return self._settings

    @cached_property  # every image and every weight is hashed
    def _settings(self) -> dict[str, Any]:
        return settings_of(
            self.detectors,
            self.sets(),
            self.ordered_threats(),
            self.attack,
            self.seed,
            self.sides,
        )


def settings_of(
    detectors: Mapping[str, Mapping[str, Detector]],
    sets: Mapping[str, ImageSet],
    threats: Sequence[Threat],
    attack: Attack,
    seed: int,
    sides: Sequence[Side] = SIDES,
) -> dict[str, Any]:
    """Everything that scores depend on, data and weights as hashes."""
    return {
        "models": {m: next(iter(ds.values())).model.fingerprint() for m, ds in detectors.items()},
        "detectors": {
            m: {
                n: d.settings() | {"fitted": _fitted_hash(d), "networks": _networks(d)}
                for n, d in ds.items()
            }
            for m, ds in detectors.items()
        },
        "data": {name: images.fingerprint() for name, images in sets.items()},
        "threats": [str(t) for t in threats],
        "attack": {"class": type(attack).__name__} | asdict(attack),
        "sides": list(sides),
        "seed": seed,
        **({"groups": groups} if (groups := _group_hashes(sets)) else {}),
    }


def _group_hashes(sets: Mapping[str, ImageSet]) -> dict[str, str]:
    """A hash of the groups of every set that has some: intervals depend on them, scores do not."""
    return {
        name: hashlib.sha256("\n".join(images.groups).encode()).hexdigest()[:16]
        for name, images in sets.items()
        if images.groups
    }


def spelled(cls: str) -> str:
    """The name of a class of attacks as rows have it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls).lower()


def role_of(dataset: str) -> Role:
    """Which side the images of a set are on."""
    inside = dataset in ("inside", "calibrate") or dataset.startswith(CORRUPTED)
    return "inside" if inside else "outside"


def as_severity(given: object) -> int | None:
    """The severity of corruptions, as a user says it: None for none."""
    known = given is None or (given in range(1, SEVERITIES + 1) and not isinstance(given, bool))
    expect(known, f"a severity of corruptions from 1 to {SEVERITIES}", repr(given))
    return given  # type: ignore[return-value]


def check_numbers(seed: int, batch_size: int | None) -> None:
    """Refuse a negative seed and an empty batch."""
    if seed < 0 or (batch_size is not None and batch_size < 1):
        raise InputError(f"expected seed >= 0 and batch size >= 1, got {seed} and {batch_size}")


def as_method(given: object) -> Method | None:
    """How to certify, as a user says it: True for the usual method, or the name of one."""
    if given is None or given is False:
        return None
    for method in METHODS:
        if given == method or (given is True and method == "crown"):
            return method
    methods = ", ".join(METHODS)
    raise InputError(f"expected a method among {methods} to certify by, got {given!r:.50}")


def check_enough(calibrate: ImageSet) -> None:
    """Refuse to set a threshold from too few images."""
    if (n := len(calibrate)) < LEAST:
        raise InputError(
            f"expected at least {LEAST} in-distribution images for a 95 % threshold, got {n} "
            f"in {calibrate.name!r}: give more images"
        )


def check_groups(images: ImageSet, name: str) -> None:
    """Refuse images that are all of one group, which leave every interval unknown."""
    if len(images) > 1 and len(set(images.groups)) == 1:
        raise InputError(
            f"expected at least two groups in {name!r}, got one ({images.groups[0]!r}) of "
            f"{len(images)} images: give images of more groups, or no groups"
        )


def _networks(detector: Detector) -> list[str]:
    """Hashes of all networks inside; an ensemble has several."""
    found = {id(m): m for m in detector.modules() if isinstance(m, Model)}
    return [m.fingerprint()[:16] for m in found.values()]


def _fitted_hash(detector: Detector) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(detector.fitted_state().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
