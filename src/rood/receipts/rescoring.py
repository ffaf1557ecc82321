"""The tier `rescore`: networks and images are loaded again, and every image is scored again."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from rood import data
from rood.data.base import ImageSet, Shape, at_once
from rood.detectors.base import Detector
from rood.device import pick_device
from rood.errors import RoodError, first_line
from rood.evaluation.division import divide, thinned
from rood.evaluation.manifest import full_precision
from rood.evaluation.plan import EVERY, Named
from rood.evaluation.prepare import fit_detectors
from rood.evaluation.tasks import classes, join, score_clean
from rood.guard.disk import rebuilt
from rood.models import checkpoint, zoo
from rood.models.load import has_card, load_network
from rood.models.model import Model
from rood.receipts import hashing
from rood.receipts.entry import Measured, NetworkEntry, misnamed
from rood.receipts.finding import Lacking, Refuted
from rood.receipts.receipt import Receipt
from rood.threat import parse

Floats = NDArray[np.float64]

# a score may differ by so much between batch sizes, engines and machines: a share of the standard
# deviation of the detector's clean scores, and a share of the score
OF_SPREAD, OF_SCORE = 1e-3, 1e-5
REFIT = 1e-2  # of the spread, between two fits on the same images
# names that anybody means the same by; what else a receipt names, the verifier must name too
OF_ANOTHER = r"(share:[\d.-]+@|balanced:\d+@|patch_shuffle:\d+@)*"
COMMON = re.compile(OF_ANOTHER + r"(digits|procedural):[\w,=.-]+")
OF_DATA = re.compile(OF_ANOTHER + r"npz:\$ROOD_DATA/[\w.-]+\.npz")


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the verifier names: its own copies of networks and images.

    Parameters
    ----------
    models : mapping
        Networks as `rood audit --model` takes them, by name in the receipt; "" is any.
    weights : str, optional
        Weights for a network whose source has none.
    data : mapping
        Images, by name of the set: "inside", "train" or a name of the OOD sets.
    trust : bool
        Whether a network may run code of its own.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    weights: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    trust: bool = False
    device: str = "auto"
    batch_size: int | None = None


@dataclass
class Witness:
    """Networks, detectors and images of a receipt, loaded again by somebody else."""

    receipt: Receipt
    given: Given

    @cached_property
    def networks(self) -> dict[str, Model]:
        """Every network by its fingerprint."""
        device = pick_device(self.given.device)
        return {n.fingerprint: self._network(n).to(device) for n in self.receipt.entry.networks}

    def _network(self, one: NetworkEntry) -> Model:
        names = [m for m, f in self.receipt.entry.models.items() if f == one.fingerprint]
        spec = next((self.given.models[n] for n in (*names, "") if n in self.given.models), None)
        shown = f"{one.kind} {one.zoo or ', '.join(names)}"
        if spec is not None:
            model = self._given_network(one, spec, shown)
        elif one.file and one.zoo:
            raise Refuted(f"the network {shown} of the zoo has weights of its own in the receipt")
        elif one.file in self.receipt.entry.absent:
            raise Lacking(
                f"the weights of {shown} are not here, only their SHA-256: name yours by --model"
            )
        elif one.file:
            self.receipt.content(one.file)
            model = checkpoint.load(self.receipt.path / one.file)
        elif one.zoo in zoo.names():
            model = zoo.load(one.zoo)
        else:
            raise Lacking(f"the network {shown} is not here: name yours by --model")
        if (found := model.fingerprint()) != one.fingerprint:
            raise Refuted(
                f"the network {shown} has other weights: its SHA-256 is {found[:12]}..., the "
                f"receipt says {one.fingerprint[:12]}..."
            )
        size = model.classes, sum(p.numel() for p in model.net.parameters())
        if spec is None and size != (one.classes, one.parameters):
            raise Refuted(
                f"the network {shown} has {size[0]} classes and {size[1]:,} parameters, the "
                f"receipt says {one.classes} and {one.parameters:,}"
            )
        return model

    def _given_network(self, one: NetworkEntry, spec: str, shown: str) -> Model:
        """The verifier's copy; that it cannot be loaded is no lie of the issuer."""
        try:
            return self._found_network(one, spec)
        except RoodError as e:
            raise Lacking(f"the network {shown} is not {spec!r}: {first_line(e)}") from e

    def _found_network(self, one: NetworkEntry, spec: str) -> Model:
        if has_card(spec):
            return load_network(spec)[0]
        shape = self.receipt.entry.data["inside"].shape
        normal = {"mean": one.mean, "std": one.std}
        like: Shape = (shape[0], shape[1], shape[2])
        weights, trust = self.given.weights, self.given.trust
        return load_network(spec, weights=weights, shape=like, trust=trust, **normal)[0]

    @cached_property
    def detectors(self) -> dict[tuple[str, str], Detector]:
        """Every fitted detector, by network and name."""
        return {
            (model, name): self._detector(model, name).eval()
            for model, found in self.receipt.entry.detectors.items()
            for name in found
        }

    def unfitted(self, model: str, name: str) -> Detector:
        """A detector as its class and arguments say."""
        one = self.receipt.entry.detectors[model][name]
        if one.networks[0] != self.receipt.entry.models[model]:
            raise Refuted(f"{name} is a detector of another network than {model}")
        return rebuilt(one.tree, [self.networks[f] for f in one.networks])

    def _detector(self, model: str, name: str) -> Detector:
        made = self.unfitted(model, name)
        state = self.receipt.arrays(self.receipt.entry.detectors[model][name].fitted)
        return made.load_fitted({k: torch.from_numpy(v) for k, v in state.items()})

    @cached_property
    def loaded(self) -> tuple[dict[str, ImageSet], dict[str, str]]:
        """The clean sets that are here, and why others are not."""
        named, entry = self.receipt.entry.named, self.receipt.entry
        sets, missing = dict[str, ImageSet](), dict[str, str]()
        try:
            parts = self._divided(named)
            if "fit" in parts:
                sets["fit"] = parts["fit"]
            sets["calibrate"] = parts["calibrate"]
            for name in ("inside", EVERY):
                sets[name] = parts["test"].thin(entry.data[name].n)
        except Lacking as e:
            missing |= dict.fromkeys(("calibrate", "inside", EVERY), str(e))
        for name in named.outside:
            try:
                sets[name] = self._load(name, named.outside[name], named, named.read)
                sets[name] = sets[name].thin(named.limit)
            except Lacking as e:
                missing[name] = str(e)
        return sets, missing

    def _divided(self, named: Named) -> dict[str, ImageSet]:
        inside = self._load("inside", named.inside, named)
        train = None if named.train is None else self._load("train", named.train, named)
        calibrate = (
            None if named.calibrate is None else self._load("calibrate", named.calibrate, named)
        )
        parts = divide(inside, train, calibrate, fit=named.fits, ours=named.ours)
        return thinned(parts, named.kept)

    def _load(self, name: str, spec: str, named: Named, limit: int | None = None) -> ImageSet:
        spec = self.given.data.get(name) or (
            spec if COMMON.fullmatch(spec) or OF_DATA.fullmatch(spec) else ""
        )
        if not spec:
            raise Lacking(f"the images of {name!r} are not here: name yours by --data {name}=SPEC")
        shape = self.receipt.entry.data["inside"].shape
        groups = None if name in ("train", "calibrate") else named.groups.get(
            name, named.groups.get("*")
        )  # fmt: skip
        like: Shape = (shape[0], shape[1], shape[2])
        try:
            return data.load(spec, shape=like, limit=limit, skip_bad=named.skip_bad, groups=groups)
        except RoodError as e:
            raise Lacking(f"the images of {name!r} cannot be read: {first_line(e)}") from e

    def images(self, name: str) -> ImageSet:
        """The images of a set, which must be those of the receipt."""
        sets, missing = self.loaded
        if name in missing:
            raise Lacking(missing[name])
        return sets[name]

    def at_once(self) -> int:
        """Images per batch."""
        shape = self.receipt.entry.data["inside"].shape
        return self.given.batch_size or at_once((shape[0], shape[1], shape[2]))

    def scores(self, detectors: Mapping[str, Detector], images: ImageSet) -> dict[str, Floats]:
        """Scores of detectors of one network."""
        with full_precision():
            found = join(list(score_clean(detectors, images, self.at_once())))
        return {name: values.astype(np.float64) for name, values in found.items()}

    def tolerance(self, one: Measured, scores: Floats) -> Floats:
        """How far each score may be from the one of the receipt.

        Near the ID scores their own spread counts, which an OOD set far away does not widen.
        """
        inside = self._clean(one, ("inside",))
        near = inside.std() + np.abs(scores - inside.mean())
        return OF_SPREAD * np.minimum(self.spread(one), near) + OF_SCORE * np.abs(scores)

    def spread(self, one: Measured) -> float:
        """The standard deviation of a detector's clean scores."""
        return float(self._clean(one, ("inside", "outside")).std())

    def _clean(self, one: Measured, roles: tuple[str, ...]) -> Floats:
        entry = self.receipt.entry
        clean = [
            self.receipt.scores(m)
            for m in entry.measured
            if (m.model, m.detector, m.threat) == (one.model, one.detector, "")
            and entry.data[m.dataset].role in roles
        ]
        return np.concatenate(clean)


def weights(w: Witness) -> str:
    """The networks have the hashes that the receipt says."""
    entry = w.receipt.entry
    text = ", ".join(entry.network(f).kind + f" {f[:12]}..." for f in w.networks)
    marks = [f"{name!r} is not the network of the zoo with that name" for name in misnamed(entry)]
    return "; ".join([text, *marks])


def clean_data(w: Witness) -> str:
    """The images are those that the names mean, all of them, divided by the rule."""
    sets, missing = w.loaded
    for name, one in w.receipt.entry.data.items():
        if name in missing:
            continue
        found, said = hashing.digests(sets[name]), w.receipt.hashes(name)
        if not np.array_equal(found, said):
            same = len(set(map(bytes, found)) & set(map(bytes, said)))
            raise Refuted(
                f"the images of {name!r} are not those that are meant: {same} of {one.n} are "
                f"among the {len(found)} of {sets[name].name!r}"
            )
        _check_groups(w, name, sets[name])
    if missing:
        raise Lacking(next(iter(missing.values())))
    return f"the images of {', '.join(w.receipt.entry.data)} are those that are meant"


def _check_groups(w: Witness, name: str, images: ImageSet) -> None:
    """The intervals are of the groups that are meant."""
    entry, found = w.receipt.entry, images.group_numbers()
    files = {one.where(): one.scores for one in entry.measured if one.dataset == name}
    if name == EVERY:
        files = entry.classes
    named = entry.named.outside.get(name, entry.named.inside)
    for where, file in files.items():
        said = w.receipt.arrays(file).get("groups")
        if said is None and found is None:
            continue
        if found is None and not named:
            raise Lacking(f"{where}: the images are grouped, and the receipt does not say by what")
        if said is None or found is None or not np.array_equal(said, found):
            raise Refuted(f"{where}: the images are grouped otherwise")


def clean_scores(w: Witness) -> str:
    """Clean images have the scores of the receipt."""
    n = 0
    for one in w.receipt.entry.measured:
        if not one.threat:
            n += _compare(w, one, w.images(one.dataset))
    return f"{n} clean scores are equal"


def threat(w: Witness) -> str:
    """Attacked images are within the budget around their originals."""
    most = [""]

    def inside(one: Measured, attacked: ImageSet) -> None:
        ball, x, x_adv = parse(one.threat), w.images(one.dataset).pixels(), attacked.pixels()
        if outside := int((~ball.contains(x_adv, x)).sum()):
            worst = float(ball.size(x_adv - x).max())
            raise Refuted(
                f"{one.where()}: {outside} of {len(x)} attacked images are outside the "
                f"budget, the farthest by {worst:.4g}"
            )
        most.append(one.threat)

    n = _every_attacked(w, inside)
    return f"{n} attacked images are within their budgets, {most[-1] or 'none'} the largest"


def _every_attacked(w: Witness, look: Callable[[Measured, ImageSet], object]) -> int:
    """Look at all attacked images that are here, then say that others are not; how many."""
    n, lacking = 0, list[Lacking]()
    for one in w.receipt.entry.measured:
        if one.threat:
            try:
                look(one, attacked := attacked_images(w, one))
                n += len(attacked)
            except Lacking as e:
                lacking.append(e)
    if lacking:
        raise lacking[0]
    return n


def attacked_images(w: Witness, one: Measured) -> ImageSet:
    """The attacked images of a measurement."""
    if one.images in w.receipt.entry.absent:
        raise Lacking(
            f"{one.where()}: the attacked images are not here, only their SHA-256: ask the issuer"
        )
    found = torch.from_numpy(w.receipt.arrays(one.images)["images"])
    return ImageSet(one.dataset, found)


def attacked_scores(w: Witness) -> str:
    """Attacked images have the scores of the receipt."""
    n = _every_attacked(w, lambda one, attacked: _compare(w, one, attacked))
    return f"{n} scores of attacked images are equal"


def _compare(w: Witness, one: Measured, images: ImageSet) -> int:
    said = w.receipt.scores(one)
    detector = w.detectors[one.model, one.detector]
    found = w.scores({one.detector: detector}, images)[one.detector]
    check_equal(said, found, w.tolerance(one, said), one.where())
    return len(said)


def check_equal(said: Floats, found: Floats, most: Floats, where: str) -> None:
    """Refuse scores that differ by more than rounding."""
    far = np.abs(said - found)
    if wrong := int((~(far <= most)).sum()):
        i = int((far - most).argmax())
        raise Refuted(
            f"{where}: {wrong} of {len(said)} scores are others: image {i} has {found[i]:.6g}, the "
            f"receipt says {said[i]:.6g}"
        )


def predicted(w: Witness) -> str:
    """The network predicts the classes of the receipt, and the labels are those of the images."""
    n = 0
    for model, file in w.receipt.entry.classes.items():
        images, said = w.images(EVERY), w.receipt.arrays(file)
        if not np.array_equal(said["labels"], images.label_numbers()):
            raise Refuted(f"{model}: the labels are not those of the images")
        network = w.networks[w.receipt.entry.models[model]]
        with full_precision():
            found = join(list(classes(network, images, w.at_once())))["class"]
        if (other := int((found != said["class"]).sum())) > max(1, len(found) // 1000):
            raise Refuted(f"{model}: {other} of {len(found)} images are predicted otherwise")
        n += len(found)
    return f"{n} predicted classes are equal"


def fitted(w: Witness) -> str:
    """Fitted on the images that are meant, the detectors give the same scores."""
    if not w.receipt.entry.named.fits:
        raise Lacking("the detectors were fitted before the audit, and nothing says on what")
    w.images("calibrate")  # divided from the same images
    fit, again = w.loaded[0]["fit"], 0
    for model, found in w.receipt.entry.detectors.items():
        made = {name: w.unfitted(model, name) for name in found}
        fit_detectors(list(made.values()), fit)
        for one in w.receipt.entry.measured:
            if one.model == model and not one.threat:
                mine = made[one.detector].eval()
                scores = w.scores({one.detector: mine}, w.images(one.dataset))[one.detector]
                most = REFIT * w.spread(one) + 10 * w.tolerance(one, scores)
                said = w.receipt.scores(one)
                where = f"{one.where()}, fitted again on {fit.name!r}"
                check_equal(said, scores, most, where)
        again += len(made)
    return f"{again} detectors fitted again give the same scores"


CHECKS = {
    "weights": weights,
    "data": clean_data,
    "clean scores": clean_scores,
    "threat": threat,
    "attacked scores": attacked_scores,
    "classes": predicted,
    "fitted": fitted,
}


def rescore(w: Witness) -> Iterator[tuple[str, str | Exception]]:
    """Name and result of each check; after a lie or without a network, the others say nothing."""
    for name, check in CHECKS.items():
        try:
            yield name, check(w)
        except Lacking as e:
            yield name, e
            if name == "weights":
                return
        except (RoodError, Refuted) as e:
            yield name, e
            return
        except (KeyError, IndexError, ValueError, TypeError, RuntimeError) as e:
            yield name, Refuted(f"the receipt contradicts itself ({type(e).__name__}: {e})")
            return
