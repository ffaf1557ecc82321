"""From settings to a bench: networks loaded, images divided, detectors fitted."""

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, get_args

import torch

from rood import config, data, detectors
from rood.attacks import registry as attacks
from rood.attacks.base import Attack
from rood.attacks.worst_of import Tier
from rood.data.base import SPLIT_RULE, ImageSet, Shape, at_once
from rood.data.contamination import contamination
from rood.detectors import Energy
from rood.detectors.base import Detector
from rood.device import pick_device
from rood.errors import CapabilityError, InputError, RoodError, expect
from rood.evaluation import diagnosis
from rood.evaluation.deadline import Deadline, seconds, too_short
from rood.evaluation.diagnosis import Diagnosis, Setup, Subject
from rood.evaluation.division import divide, thinned
from rood.evaluation.effort import Pace
from rood.evaluation.manifest import full_precision
from rood.evaluation.open_set import hold_out, known_outputs
from rood.evaluation.plan import Named, Plan, as_method, as_severity, check_enough
from rood.evaluation.rows import SIDES
from rood.evaluation.settings import DEFAULT_LIMIT, FEW, AuditSettings, with_images
from rood.evaluation.time_limit import (
    FEWEST,
    MOST,
    Choice,
    choose,
    clean_images,
    fewer,
    forward,
    least_attack,
    measured,
    refuse_too_short,
)
from rood.goals import look_in
from rood.models.load import find_network, has_card, is_function, load_network
from rood.models.model import Model
from rood.models.sources.base import ForeignNetwork
from rood.models.wrap import without_features
from rood.registry import unknown
from rood.threat import Threat, as_threats

# fixed: fitted values differ in their last bits between batch sizes, and a run may continue another
FIT_BATCH = 128
MOST_KNOWN = 10_000  # ID images on which the accuracy is measured
MOST_AT_ONCE = 256  # images of a batch
QUICK_STEPS = 20  # of PGD by default
TIERS = get_args(Tier)  # of worst_of, which are names of attacks too
OF_PGD = {"steps", "step", "restarts"}  # options that say which attack is meant

Networks = Mapping[str, tuple[Model, dict[str, Any]]]  # each with its card, by a short name


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Networks with their fitted detectors, and ID images divided: what every evaluation needs."""

    detectors: Mapping[str, Mapping[str, Detector]]  # by model name, then by detector name; fitted
    fit: ImageSet  # what the detectors were fitted on
    calibrate: ImageSet  # sets the threshold
    inside: ImageSet  # for the tests
    about: Mapping[str, Any]  # for the manifest: how images were divided, notes, skipped detectors

    def load(self, spec: str, s: AuditSettings) -> ImageSet:
        """Images from elsewhere, with notes on what makes them an unfair OOD set."""
        ours = [self.fit, self.calibrate, self.inside]
        images = _read(spec, s, self.inside.shape, s.limit)
        return replace(images, notes=(*images.notes, *contamination(ours, images)))


def prepare(s: AuditSettings) -> Bench:
    """Load networks and images, and fit the detectors."""
    s = with_images(s, outside=False)
    if s.open_set:
        raise InputError(
            f"expected no classes held out but in an audit, got {', '.join(s.open_set)}: leave "
            "open_set out"
        )
    setup = set_up(s, {})
    return _fitted(s, setup, list(diagnosis.examine(setup)))


def plan_audit(s: AuditSettings, earlier: Mapping[str, Any] | None = None) -> Plan:
    """The plan that the settings describe.

    earlier: what the manifest of the run to continue says about its time limit.
    """
    start = monotonic()
    s = with_images(s, outside=True)
    setup = set_up(s, s.outside)
    clean = _clean(s, setup, earlier, start)
    found = list(diagnosis.examine(setup))
    diagnosis.refuse(found, anyway=s.anyway)  # before the detectors are fitted, which takes longer
    bench = _fitted(s, clean.learnt(setup), found)
    fitted, limit, attack, about = bench.detectors, s.limit, setup.attack, dict(bench.about)
    deadline, left_out = None, tuple[tuple[str, str], ...]()
    if s.time is not None and not s.attacks:  # nothing to choose: what does not fit is left out
        deadline, about["time"] = Deadline(s.time, start), {"asked": s.time}
    elif s.time is not None:
        choice = _earlier(s, earlier) or _choice(s, bench, setup.threats, start - clean.ahead)
        deadline, left_out = Deadline(s.time, start), choice.left_out
        attack, limit = choice.attack, choice.limit
        fitted = {m: {n: ds[n] for n in ds if n in choice.detectors} for m, ds in fitted.items()}
        about["time"] = choice.to_dict()
        if late := too_short(s.time, [(d, "") for d in choice.dropped]):
            about["notes"] = [*about.get("notes", ()), late]
    about |= clean.told(about, setup, limit)
    outside = diagnosis.with_notes(found, setup.outside)
    return Plan(
        detectors=fitted,
        calibrate=bench.calibrate,
        inside=bench.inside.thin(limit),
        outside={n: images.thin(limit) for n, images in outside.items()},
        every=None if setup.open_set else bench.inside.thin(clean.every(setup, limit)),
        open_set=setup.open_set,
        corruptions=as_severity(s.corruptions),
        threats=setup.threats,
        attack=attack,
        sides=SIDES if s.attacks else (),
        certify=as_method(s.certify),
        seed=s.seed,
        batch_size=s.batch_size,
        deadline=deadline,
        left_out=left_out,
        about=about,
        named=_named(s, limit, clean),
    )


def _named(s: AuditSettings, limit: int | None, clean: "_Clean") -> Named:
    """How another loads the same images; `limit` and `clean` may be the choice of a time limit."""
    return Named(
        inside=s.inside,
        outside=dict(s.outside),
        train=s.train,
        groups=dict(s.groups),
        skip_bad=s.skip_bad,
        ours=any(map(has_card, s.models)),
        read=_at_most(s),
        limit=limit,
        kept={k: n for k, n in clean.kept.items() if k != "accuracy"},
    )


def diagnose(s: AuditSettings) -> list[Diagnosis]:
    """What `rood doctor` says: the results of all checks, and what would stop an audit."""
    found = list[Diagnosis]()
    try:
        s = with_images(s, outside=True)
        setup = set_up(s, s.outside)
        found += diagnosis.examine(setup, estimate=True)
        for one in setup.subjects:
            made, fit = setup.detectors[one.name], _there(setup.fit)
            _, skipped = servable(made, fit, one.name, logits_only=one.card["logits_only"])
            found += [Diagnosis("detectors", "warn", f"skipped {text}") for text in skipped]
        check_enough(_there(setup.calibrate))
    except RoodError as e:
        found.append(Diagnosis("audit", "fail", str(e)))
    return found


def set_up(s: AuditSettings, outside: Mapping[str, str]) -> Setup:
    """Networks and images loaded, detectors made, nothing fitted."""
    threats, makers, attack = made_threats(s.threats), _makers(s), made_attack(s)
    as_severity(s.corruptions)  # before what takes long
    device = pick_device(s.device)
    networks, shape = load_networks(s)
    most = _at_most(s)
    sets = {n: _read(spec, s, shape, most, _groups(s, n)) for n, spec in outside.items()}
    parts = divided(s, shape)
    held_out, parts, sets = hold_out(s.open_set, parts, sets)
    networks = {
        m: known_outputs(held_out, m, *network, parts["test"]) for m, network in networks.items()
    }
    detectors = {
        m: {
            n: _made(make, s.options.get(n, {}), f"options.{n}", model)
            for n, make in makers.items()
        }
        for m, (model, _) in networks.items()
    }
    for m, (model, _) in networks.items():
        check_classes(m, model, parts["fit"])
    test = parts["test"]
    return Setup(
        subjects=[Subject(m, net.to(device), test, card) for m, (net, card) in networks.items()],
        inside=test,
        outside=sets,
        open_set=held_out,
        fit=parts["fit"],
        calibrate=parts["calibrate"],
        detectors=detectors,
        threats=threats,
        attack=attack,
        limit=s.limit,
    )


def made_threats(given: object) -> tuple[Threat, ...]:
    """The budgets of an audit."""
    threats = as_threats(given)
    for threat in threats:
        expect(
            threat.eps > 0,
            "a budget above 0 to attack with",
            threat,
            do="--eps none (threats=[] in Python) attacks nothing",
        )
    return threats


def made_attack(s: AuditSettings) -> Attack:
    """The attack with its options."""
    name = s.attack or ("pgd" if OF_PGD & s.attack_options.keys() else "quick")
    usual: dict[str, object] = {"steps": QUICK_STEPS} if name == "pgd" else {}
    if name in TIERS:
        name, usual = "worst_of", {"tier": name}
    return _made(attacks.get(name), usual | s.attack_options, "attack_options")


def _makers(s: AuditSettings) -> dict[str, Any]:
    names: Sequence[str] = s.detectors or FEW
    if tuple(names) == ("all",):
        every = detectors.registry.names()
        names = [n for n in every if not hasattr(detectors.registry.get(n), "example")]
    makers = {name: detectors.registry.get(name) for name in names}
    for name, make in makers.items():
        if next(iter(inspect.signature(make).parameters), "") != "model":
            raise InputError(
                f"expected detectors of one network, got {name!r}, which is made of others: "
                "make it in Python, for rood.audit"
            )
    for name in s.options:
        if name not in makers:
            raise InputError(f"expected options for {', '.join(makers)}, got some for {name!r}")
    return makers


def _made(make: Any, options: Mapping[str, object], where: str, *args: Any) -> Any:
    """make(*args, **options), each option checked against the constructor's annotations."""
    return make(*args, **config.arguments(make, options, where, but={"compare"}))


# --- loading: networks, and images of one shape for all of them


def load_networks(s: AuditSettings) -> tuple[Networks, Shape]:
    """Each network with its card, by a short name, and the shape of the images for all."""
    if len(set(s.models)) > 1 and (s.weights or s.mean or s.std):
        raise InputError(
            f"expected one network beside --weights, --mean and --std, got {len(s.models)}"
        )
    given: dict[str, Any] = {
        "weights": s.weights,
        "mean": s.mean or None,
        "std": s.std or None,
        "trust": s.trust,
    }
    found: dict[str, tuple[Model, dict[str, Any]] | ForeignNetwork] = {}
    for spec in s.models:
        find: Any = load_network if has_card(spec) else find_network
        found[_short_name(spec, s.models)] = find(spec, **given)
    shape = _shape(s, found)
    notes = _guessed_size(s, found, shape)
    return {
        n: replace(f, notes=f.notes + notes).build(shape) if isinstance(f, ForeignNetwork) else f
        for n, f in found.items()
    }, shape


def _guessed_size(s: AuditSettings, found: Mapping[str, Any], shape: Shape) -> tuple[str, ...]:
    if s.size or any(not isinstance(f, ForeignNetwork) or f.shape for f in found.values()):
        return ()
    some = data.load(s.inside, shape=shape, limit=16, skip_bad=s.skip_bad)
    return guessed_size(some, "--size")


def guessed_size(images: ImageSet, option: str) -> tuple[str, ...]:
    """What to say where the first image alone decides to which size all were resized."""
    if not any("resized from" in note for note in images.notes):
        return ()
    size = "x".join(map(str, images.shape[1:]))
    return (
        f"the images have several sizes and are resized to {size}, that of the first, since the "
        f"network names none: give {option} as in its training",
    )


def _shape(
    s: AuditSettings, found: Mapping[str, tuple[Model, dict[str, Any]] | ForeignNetwork]
) -> Shape:
    own = {n: _three(f[1]["shape"]) for n, f in found.items() if not isinstance(f, ForeignNetwork)}
    others = {n: f.shape for n, f in found.items() if isinstance(f, ForeignNetwork) and f.shape}
    size = None if s.size is None else _size(s.size)
    # networks of rood take one size; those that know their own resize what else they get
    stated = own or ({} if size else others)
    if len(set(stated.values())) > 1:
        hint = "" if own else ": choose one with --size, and each resizes to its own"
        raise InputError(f"expected networks that take images of one shape, got {stated}{hint}")
    if own and size and size != next(iter(own.values()))[1:]:
        raise InputError(f"expected no --size beside networks of rood, which take {stated}")
    if stated:
        return next(iter(stated.values()))
    c, *own_size = next(iter(others.values()), None) or data.load(s.inside, limit=1).shape
    h, w = size or own_size
    return c, h, w


def _short_name(spec: str, others: tuple[str, ...]) -> str:
    """The last part of a name or path, unless two networks share it."""
    alike = [n for n in others if _last(n) == _last(spec)]
    return spec if len(set(alike)) > 1 else _last(spec)


def _last(spec: str) -> str:
    kind, colon, rest = spec.partition(":")
    if colon and kind in ("hf", "timm"):
        return rest.rstrip("/").rpartition("/")[2]
    return spec if is_function(spec) else Path(spec).stem


def _size(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text)):
        raise InputError(f"expected a size such as 32 or 32x48 (height x width), got {text!r}")
    return int(match[1]), int(match[2] or match[1])


def _three(shape: Any) -> Shape:
    c, h, w = shape
    return int(c), int(h), int(w)


def divided(s: AuditSettings, shape: Shape) -> dict[str, ImageSet]:
    """The ID images that fit, calibrate and test."""
    groups = _groups(s, "inside")
    inside = data.load(s.inside, shape=shape, skip_bad=s.skip_bad, groups=groups)
    train = None if s.train is None else data.load(s.train, shape=shape, skip_bad=s.skip_bad)
    return divide(inside, train, ours=any(map(has_card, s.models)))


def _groups(s: AuditSettings, name: str) -> str | None:
    """How the images of a set are grouped."""
    for known in s.groups:
        if known not in ("*", "inside", *s.outside):
            raise unknown("image set to group", known, ["inside", *s.outside])
    return s.groups.get(name, s.groups.get("*"))


def _read(
    spec: str, s: AuditSettings, shape: Shape, limit: int | None, groups: str | None = None
) -> ImageSet:
    """Images from elsewhere."""
    return data.load(spec, shape=shape, limit=limit, skip_bad=s.skip_bad, groups=groups)


def _at_most(s: AuditSettings) -> int | None:
    """Images to read per set: a time limit chooses among more than are used in the end."""
    return MOST if s.time is not None and s.limit in (None, DEFAULT_LIMIT) else s.limit


# --- fitting the detectors that can serve


def _fitted(s: AuditSettings, setup: Setup, found: Sequence[Diagnosis]) -> Bench:
    fit, calibrate = _there(setup.fit), _there(setup.calibrate)
    fitted: dict[str, dict[str, Detector]] = {}
    skipped = dict[str, None]()  # each sentence once, in order
    for one in setup.subjects:
        made, logits_only = setup.detectors[one.name], one.card["logits_only"]
        fitted[one.name], sentences = servable(made, fit, one.name, logits_only=logits_only)
        check_enough(calibrate)  # before what takes long
        fit_detectors(fitted[one.name].values(), fit)
        skipped |= dict.fromkeys(sentences)
    told: dict[str, Any] = {"notes": diagnosis.notes(found, setup.outside)}
    told |= {"skipped": list(skipped)}
    if setup.open_set is not None:
        told["open_set"] = setup.open_set.about()
    return Bench(
        detectors=fitted,
        fit=fit,
        calibrate=calibrate,
        inside=setup.inside,
        about={
            "split": _told(s, setup),
            **{k: v for k, v in told.items() if v},
            "diagnosis": [asdict(one) for one in found],
        },
    )


def fit_detectors(found: Collection[Detector], fit: ImageSet) -> None:
    """Fit detectors of one network, always in the same batches."""
    device = next(iter(found)).model.mean.device
    with full_precision():
        detectors.fit_all(found, fit.batches(_fit_batch(fit, device), device))


def _fit_batch(fit: ImageSet, device: torch.device) -> int:
    return at_once(fit.shape, FIT_BATCH) if device.type == "cpu" else FIT_BATCH


def _told(s: AuditSettings, setup: Setup) -> dict[str, Any]:
    """How the images were divided, for the manifest."""
    fit, calibrate = _there(setup.fit), _there(setup.calibrate)
    counts = {"fit": len(fit), "calibrate": len(calibrate), "test": len(setup.inside)}
    fit_on = f"part of {s.inside}" if s.train is None else s.train
    told = {"rule": SPLIT_RULE, "fit on": fit_on, **counts}
    return told | ({"notes on fit": list(fit.notes)} if fit.notes else {})


def _there(images: ImageSet | None) -> ImageSet:
    assert images is not None  # `set_up` gives all parts
    return images


def check_classes(name: str, model: Model, fit: ImageSet) -> None:
    """Refuse labels that the network has no class for."""
    if fit.labels is not None and int(fit.labels.max()) >= model.classes:
        raise InputError(
            f"expected labels 0 to {model.classes - 1} for {name}, got up to "
            f"{int(fit.labels.max())}: are these the network's classes?"
        )


def servable(
    found: Mapping[str, Detector], fit: ImageSet, name: str, *, logits_only: bool
) -> tuple[dict[str, Detector], list[str]]:
    """The detectors that network and images can serve, and a sentence about the others."""
    kept, skipped = dict(found), list[str]()
    rules = [_lack_labels, _lack_classes, *([_lack_features] if logits_only else [])]
    for rule in rules:
        dropped, why, refusal = rule(kept, fit, name)
        if len(dropped) == len(kept):
            raise refusal
        kept = {n: d for n, d in kept.items() if n not in dropped}
        skipped += [f"{', '.join(dropped)}: {why}"] if dropped else []
    return kept, skipped


_Rule = tuple[list[str], str, RoodError]  # detectors to skip, why, and the error if none is left


def _lack_labels(found: Mapping[str, Detector], fit: ImageSet, name: str) -> _Rule:
    all_labelled = fit.labels is not None and bool((fit.labels >= 0).all())
    dropped = [] if all_labelled else [n for n, d in found.items() if needs_labels(d)]
    refusal = InputError(
        f"expected labelled images to fit {', '.join(dropped)}, got none in {fit.name!r}: "
        "put them in one folder per class, or name labelled images by --train (train=(x, y))"
    )
    return dropped, f"{fit.name!r} has unlabelled images", refusal


def needs_labels(detector: Detector) -> bool:
    """Whether it, or a detector inside it, learns from the classes of images."""
    return any(d.needs_labels for d in detector.modules() if isinstance(d, Detector))


def _lack_classes(found: Mapping[str, Detector], fit: ImageSet, name: str) -> _Rule:
    """Where some classes have no image: detectors that learn class by class."""
    classes = next(iter(found.values())).model.classes
    there = set() if fit.labels is None else set(fit.labels[fit.labels >= 0].tolist())
    lacking = sorted(set(range(classes)) - there) if there else []
    dropped = [
        n for n, d in found.items() if lacking and needs_labels(d) and not _fits_on_few(d, fit)
    ]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    refusal = InputError(
        f"expected training images of all {classes} classes to fit {', '.join(dropped)}, got "
        f"none of class {', '.join(map(str, lacking[:3]))}{more} in {fit.name!r}: "
        "give some, or other detectors"
    )
    return dropped, f"{fit.name!r} has images of {len(there)} of {classes} classes", refusal


def _fits_on_few(detector: Detector, fit: ImageSet) -> bool:
    """Try two images, which lack nearly every class."""
    few = fit.take(torch.arange(min(len(fit), 2)))
    try:
        detectors.fit_all([detector], few.batches(2, detector.model.mean.device))
    except InputError:
        return False
    return True


def _lack_features(found: Mapping[str, Detector], fit: ImageSet, name: str) -> _Rule:
    """Where a network gives logits alone: detectors that read features, found by trying."""
    dropped = [n for n, d in found.items() if _reads_features(d, fit)]
    refusal = CapabilityError(
        f"expected detectors of the logits, which are all that {name} gives, got "
        f"{', '.join(dropped)}, which read features: take msp, energy, entropy, gen, odin, ..."
    )
    return dropped, f"{name} gives logits only, no features", refusal


def _reads_features(detector: Detector, fit: ImageSet) -> bool:
    device = detector.model.mean.device
    few = fit.take(torch.arange(min(len(fit), 64)))
    try:
        with without_features(detector.model), torch.no_grad():
            detectors.fit_all([detector], few.batches(64, device))
            detector.score(few.take(torch.arange(1)).pixels(device))
    except CapabilityError:
        return True
    except RoodError:
        return False  # too few images, a class without any: the fit itself will say so
    return False


# --- what fits into a time limit


class _Clean(NamedTuple):
    """Clean images to use, by purpose, where a time limit allows fewer than there are."""

    kept: Mapping[str, int]
    ahead: float = 0.0  # seconds of the passes over them once detectors are fitted
    most: int = MOST  # ID images whose class is predicted, where the limit allows that

    def every(self, setup: Setup, limit: int | None) -> int:
        """ID images whose class is predicted: all, or of the `limit` attacked ones a multiple."""
        n, most = len(setup.inside), self.kept.get("accuracy", self.most)
        return n if n <= most or limit is None else most - most % limit or limit

    def learnt(self, setup: Setup) -> Setup:
        """The setup with the images that fit and calibrate."""
        parts = thinned(_learnt(setup), self.kept)
        return replace(setup, fit=parts["fit"], calibrate=parts["calibrate"])

    def told(self, about: Mapping[str, Any], setup: Setup, limit: int | None) -> dict[str, Any]:
        """What the manifest says of it."""
        if not self.kept:
            return {}
        kept = dict(self.kept)
        if "accuracy" in kept:
            kept["accuracy"] = self.every(setup, limit)
        said = fewer(about["time"]["asked"], kept, _sizes(setup))
        time = about["time"] | {"clean": kept}
        return {"time": time, "notes": [*about.get("notes", ()), said]}


def _clean(
    s: AuditSettings, setup: Setup, earlier: Mapping[str, Any] | None, start: float
) -> _Clean:
    """What the first passes of the networks allow; a limit too short for any attack is refused."""
    if s.time is None:
        return _Clean({}, most=MOST_KNOWN)
    seconds(s.time)  # refuses what is no time
    if earlier and earlier.get("asked") == s.time:  # a run that is continued fits the same
        return _Clean(earlier.get("clean", {}))
    image = seconds_of_attack = 0.0
    attack, limit = _given(s)
    sizes = [min(len(x), limit or FEWEST) for x in (setup.inside, *setup.outside.values())]
    for one in setup.subjects:
        x = one.some.thin(FEWEST).pixels().to(one.model.mean)
        image += forward(one.model, x)
        if s.attacks and setup.threats:
            pace = measured(Energy(one.model), x, setup.threats[0], s.time)
            seconds_of_attack += least_attack(pace, attack, sizes)
    more = [d.cost() for d in setup.detectors[setup.subjects[0].name].values()]
    passes = {"fit": 1.0, "calibrate": 1.0 + sum(sum(c) for c in more if c != (1, 0))}
    parts = {k: (n, passes.get(k, 1.0)) for k, n in _sizes(setup).items()}
    kept = clean_images(s.time, image, parts)
    used = {k: (kept[k], p) for k, (_, p) in parts.items()}
    refuse_too_short(s.time, monotonic() - start, image, used, seconds_of_attack)
    ahead = image * sum(n * p for k, (n, p) in used.items() if k != "fit")
    return _Clean({k: n for k, n in kept.items() if n < parts[k][0]}, ahead)


def _learnt(setup: Setup) -> dict[str, ImageSet]:
    """The parts of the ID images that fit and calibrate."""
    return {"fit": _there(setup.fit), "calibrate": _there(setup.calibrate)}


def _sizes(setup: Setup) -> dict[str, int]:
    """Clean images there are, by purpose."""
    sizes = {k: len(x) for k, x in _learnt(setup).items()}
    return sizes | {"accuracy": min(MOST, len(setup.inside))}


def _choice(s: AuditSettings, bench: Bench, threats: Sequence[Threat], start: float) -> Choice:
    """What fits into the time limit; whatever the user has given stays as it is."""
    assert s.time is not None
    shape, on_cpu = bench.inside.shape, pick_device(s.device).type == "cpu"
    batch_size = s.batch_size or (at_once(shape, MOST_AT_ONCE) if on_cpu else MOST_AT_ONCE)
    some = bench.inside.thin(min(batch_size, FEWEST))
    each: dict[str, tuple[Pace, int]] = {}
    for ds in bench.detectors.values():
        for n, d in ds.items():
            x = some.pixels().to(d.model.mean)
            before, _ = each.get(n, (Pace(0.0, 0.0), 0))
            pace = measured(d, x, threats[0], s.time) if threats else Pace(0.0, 0.0)
            both = Pace(before.call + pace.call, before.image + pace.image)
            each[n] = (both, len(look_in(d).variants))
    attack, limit = _given(s)
    return choose(
        s.time,
        monotonic() - start,  # measuring took time too
        each,
        sets=1 + len(s.outside),
        threats=len(s.threats),
        attack=attack,
        limit=limit,
    )


def _earlier(s: AuditSettings, facts: Mapping[str, Any] | None) -> Choice | None:
    """What a run with the same time limit chose; what is given now goes before it."""
    if not facts or facts.get("asked") != s.time or "attack" not in facts:
        return None
    choice = Choice.from_dict(facts)
    attack, limit = _given(s)
    return replace(choice, attack=attack or choice.attack, limit=limit or choice.limit)


def _given(s: AuditSettings) -> tuple[Attack | None, int | None]:
    """The attack and the images per set, where the user has named them."""
    named = s.attack is not None or bool(s.attack_options)
    return made_attack(s) if named else None, None if s.limit == DEFAULT_LIMIT else s.limit
