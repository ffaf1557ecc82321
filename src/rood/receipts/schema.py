"""The tier `schema`: what can be checked with the receipt alone, in a second."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import PurePosixPath

import numpy as np

from rood.errors import RoodError
from rood.evaluation.plan import EVERY, role_of, spelled
from rood.evaluation.probes import TIERS as PRESETS
from rood.receipts import hashing
from rood.receipts.entry import NAME, Measured
from rood.receipts.finding import Refuted
from rood.receipts.receipt import HASHES, MAY_BE_THERE, MOST, SUFFIXES, Receipt
from rood.receipts.recount import differences, recount
from rood.threat import parse

REPEATED = 0.01  # share of a set that may be there twice
HUGE = 1e100  # no score of float32 images; the standard deviation of such would overflow


def files(receipt: Receipt) -> str:
    """Every file has its hash, and nothing else is there."""
    there, known = set[str](), receipt.entry.files
    for name in receipt.names():
        there.add(name)
        if len(there) > MOST:
            raise Refuted(f"the receipt has more than {MOST:,} files")
        if name == NAME or name in MAY_BE_THERE:
            continue
        if name not in known:
            raise Refuted(f"{name!r} is in the folder, and {NAME} does not know it")
        if not receipt.folder.has(name) or PurePosixPath(name).suffix not in SUFFIXES:
            raise Refuted(f"{name!r} is no file that a receipt has: {', '.join(SUFFIXES)}")
        receipt.content(name)
    if loose := sorted(_used(receipt) - set(known)):
        raise Refuted(f"{loose[0]!r} is used, and {NAME} has no SHA-256 of it")
    absent = set(receipt.entry.absent)
    if lost := sorted(set(known) - there - absent):
        raise Refuted(f"{lost[0]!r} is missing")
    if more := sorted(absent & there):
        raise Refuted(f"{more[0]!r} is there, and {NAME} says that it is not")
    return f"{len(known)} files have the SHA-256 that {NAME} says" + (
        f", {len(absent)} of them are not here" if absent else ""
    )


def _used(receipt: Receipt) -> set[str]:
    """Every file that a number follows from."""
    entry = receipt.entry
    found = {"rows.jsonl", "manifest.json", HASHES, *entry.classes.values()}
    found |= {n.file for n in entry.networks if n.file}
    found |= {d.fitted for each in entry.detectors.values() for d in each.values()}
    return found | {f for m in entry.measured for f in (m.scores, *([m.images] * bool(m.threat)))}


def data(receipt: Receipt) -> str:
    """Hashes of images: as many as said, none twice, no image on two sides."""
    _check_roles(receipt)
    lists = {}
    for name, one in receipt.entry.data.items():
        each = receipt.hashes(name)
        if each.shape != (one.n, hashing.SIZE):
            raise Refuted(f"{name!r} is said to have {one.n} images, and has {len(each)} hashes")
        if hashing.of_list(each) != one.sha256:
            raise Refuted(f"the hashes of the images of {name!r} are not those of {NAME}")
        counts = Counter(map(bytes, each))
        if (again := one.n - len(counts)) > REPEATED * one.n:
            raise Refuted(f"{again} of {one.n} images of {name!r} are there more than once")
        lists[name] = set(counts)
    for a, b in combinations(lists, 2):
        both = len(lists[a] & lists[b])
        if both > REPEATED * min(map(len, (lists[a], lists[b]))) and {a, b} != {"inside", EVERY}:
            raise Refuted(f"{both} images are in {a!r} and in {b!r}: {_why(a, b)}")
    if "inside" in lists and EVERY in lists and not lists["inside"] <= lists[EVERY]:
        raise Refuted("the accuracy is not of the ID test images")
    sizes = ", ".join(f"{name} {one.n}" for name, one in receipt.entry.data.items())
    return f"no image is in two sets ({sizes})"


def _check_roles(receipt: Receipt) -> None:
    sets = receipt.entry.data
    if lost := [n for n in ("inside", "calibrate", EVERY) if n not in sets]:
        raise Refuted(f"there are no images {lost[0]!r}")
    for name, one in sets.items():
        if one.role != (wanted := "inside" if name == EVERY else role_of(name)):
            raise Refuted(f"{name!r} is on the side {wanted!r}, and {NAME} says {one.role!r}")
    if not any(one.role == "outside" for one in sets.values()):
        raise Refuted("there are no OOD images")


def _why(a: str, b: str) -> str:
    if "calibrate" in (a, b):
        return "the threshold was set on images that are tested"
    return "the same images are ID and OOD"


def attack(receipt: Receipt) -> str:
    """The preset is the one that made the scores."""
    said, entry = receipt.entry.attack, receipt.entry
    if hashing.of_value(said.settings) != said.sha256:
        raise Refuted("the settings of the attack are not those of its SHA-256")
    kind, tier = str(said.settings.get("class")), said.settings.get("tier", "")
    if said.name != spelled(kind) or (tier and kind != "WorstOf"):
        raise Refuted(f"the attack is called {said.name} {tier}, and its settings are of {kind}")
    wanted = PRESETS.index(str(tier))
    for one in entry.measured:
        if not one.threat:
            continue
        if (made := receipt.arrays(one.scores).get("tier")) is None or not made.size:
            raise Refuted(f"the scores of {one.where()} do not say which attack made them")
        if not (made == wanted).all():
            raise Refuted(
                f"{NAME} says the attack is {tier or said.name}, and the scores of {one.where()} "
                f"were made by {PRESETS[int(made.flat[0])] or 'another attack'}"
            )
    unknown = {m.threat for m in entry.measured} - {"", *entry.threats}
    if unknown or [str(parse(t)) for t in entry.threats] != list(entry.threats):
        raise Refuted(f"the budgets {', '.join(entry.threats)} are not those of the scores")
    return f"{tier or said.name}, {', '.join(entry.threats) or 'no budget'}"


def scores(receipt: Receipt) -> str:
    """One finite score per image, attacked ones no weaker than clean ones; images of 8 bits."""
    entry = receipt.entry
    clean = {(m.model, m.detector, m.dataset): m for m in entry.measured if not m.threat}
    _check_complete(receipt)
    for one in entry.measured:
        n, values = entry.data[one.dataset].n, receipt.scores(one)
        if values.shape != (n,) or not (np.abs(values) < HUGE).all():
            raise Refuted(f"{one.where()}: expected {n} finite scores, got {values.size}")
        if not one.threat:
            continue
        sign = 1 if entry.data[one.dataset].role == "inside" else -1
        before = receipt.scores(clean[one.model, one.detector, one.dataset])
        weak = int((sign * (values - before) < -1e-3 * (before.std() + 1e-6)).sum())
        if weak:
            raise Refuted(f"{one.where()}: {weak} attacked scores are weaker than the clean ones")
        _check_images(receipt, one)
    return f"{len(entry.measured)} sets of scores"


def _check_complete(receipt: Receipt) -> None:
    """Every detector has the same sets at each of its budgets."""
    entry = receipt.entry
    there = {(m.model, m.detector, m.dataset, m.threat) for m in entry.measured}
    sets = [name for name in entry.data if name != EVERY]
    roles = {"inside" if {"inside", "both"} & set(entry.sides) else "",
             "outside" if {"outside", "both"} & set(entry.sides) else ""}  # fmt: skip
    attacked = [n for n in sets if n != "calibrate" and entry.data[n].role in roles]
    for model, detectors in entry.detectors.items():
        for detector in detectors:
            mine = {t for m, d, _, t in there if (m, d) == (model, detector)}
            for dataset, threat in [(s, "") for s in sets] + [
                (s, t) for s in attacked for t in mine - {""}
            ]:
                if (model, detector, dataset, threat) not in there:
                    where = f"{model} {detector} on {dataset} {threat}".rstrip()
                    raise Refuted(f"there are no scores of {where}")


def _check_images(receipt: Receipt, one: Measured) -> None:
    if one.images in receipt.entry.absent:
        return
    images = receipt.arrays(one.images).get("images")
    about = receipt.entry.data[one.dataset]
    if images is None or images.dtype != np.uint8 or images.shape != (about.n, *about.shape):
        got = "none" if images is None else f"{images.dtype} of shape {images.shape}"
        raise Refuted(
            f"{one.where()}: expected attacked images of 8 bits and of shape "
            f"{(about.n, *about.shape)}, got {got}"
        )


def rows(receipt: Receipt) -> str:
    """Every row is what the scores give."""
    said = receipt.rows()
    for wrong in differences(said, recount(receipt)):
        raise Refuted(wrong)
    return f"{len(said)} rows follow from the scores"


CHECKS = {"files": files, "data": data, "attack": attack, "scores": scores, "rows": rows}


def schema(receipt: Receipt) -> Iterator[tuple[str, str | Exception]]:
    """Name and result of each check; after one that fails, the others say nothing."""
    try:
        entry = receipt.entry
    except RoodError as e:
        yield "entry", e
        return
    yield "entry", f"format {entry.format}, of {entry.date}"
    for name, check in CHECKS.items():
        try:
            yield name, check(receipt)
        except (RoodError, Refuted) as e:
            yield name, e
            return
        except (KeyError, IndexError, ValueError, TypeError) as e:
            yield name, Refuted(f"the receipt contradicts itself ({type(e).__name__}: {e})")
            return
