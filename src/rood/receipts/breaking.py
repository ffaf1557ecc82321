"""Attacked images of anybody that lower a number of a receipt: checked, kept and named.

breaks/ID.json          who, when, which detector, set and budget, AUROC before and after
breaks/ID.safetensors   `images` (n, c, h, w) in 8 bits, their `places` in the set, their `scores`

The number that is shown is the lowest over all of them: of each image the strongest attack counts.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as as_bytes

from rood import config
from rood._parsing import json_of
from rood.data.base import ImageSet
from rood.errors import ConfigError, InputError, ResultsError, expect
from rood.evaluation.rows import Row
from rood.evaluation.store import Store
from rood.receipts import hashing
from rood.receipts.entry import Measured
from rood.receipts.finding import Refuted
from rood.receipts.receipt import BREAKS, LARGEST, Arrays, Receipt, arrays_of
from rood.receipts.recount import recount
from rood.receipts.rescoring import Witness, check_equal
from rood.threat import parse

Places = NDArray[np.int64]
LEAST = 1e-4  # an AUROC that falls by less is not lowered
MOST_BREAKS = 1000
_NAME = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(_NAME.pattern + r"\.(json|safetensors)(\.part)?")  # a kill leaves parts


@dataclass(frozen=True, kw_only=True)
class Break:
    """One set of attacked images that lowers a number."""

    by: str
    date: str
    how: str  # "images", or "reattack" and its nonce
    receipt: str  # the hash of the receipt
    model: str
    detector: str
    dataset: str
    threat: str
    before: float  # the lowest AUROC with both sides attacked
    after: float
    sha256: str  # of the file of images

    @property
    def name(self) -> str:
        """Of its two files."""
        return self.sha256[:16]

    def measured(self, receipt: Receipt) -> Measured:
        """What it lowers."""
        mine = (self.model, self.detector, self.dataset, self.threat)
        for m in receipt.entry.measured:
            if m.threat and (m.model, m.detector, m.dataset, m.threat) == mine:
                return m
        raise ResultsError(f"breaks/{self.name} is of {' '.join(mine)}, which nothing measured")


def breaks(receipt: Receipt) -> list[Break]:
    """All that were written, the oldest first."""
    names = receipt.folder.files(BREAKS, ".json")
    if len(names) > MOST_BREAKS:
        raise ResultsError(f"expected at most {MOST_BREAKS} breaks, got {len(names)}")
    return sorted((_read(receipt, n) for n in names), key=lambda b: (b.date, b.name))


def _read(receipt: Receipt, name: str) -> Break:
    try:
        found = config.build(Break, json_of(receipt.folder.read(name)), name)
    except (OSError, ValueError, ConfigError) as e:
        raise ResultsError(f"{name} is no record of a break: {e}") from e
    if not _NAME.fullmatch(Path(name).stem) or Path(name).stem != found.name:
        raise ResultsError(f"{name} is not named after its images")
    if found.receipt != receipt.digest:
        raise ResultsError(f"{name} is of another receipt")
    return found


def arrays(receipt: Receipt, one: Break) -> Arrays:
    """Images, places and scores of a break."""
    file = f"{BREAKS}/{one.name}.safetensors"
    try:
        content = receipt.folder.read(file, LARGEST)
    except OSError as e:
        raise ResultsError(f"{file} cannot be read: {e.strerror or e}") from e
    if hashlib.sha256(content).hexdigest() != one.sha256:
        raise ResultsError(f"{file} has another SHA-256 than its record says")
    found, n = arrays_of(content, file), 0
    if {"images", "places", "scores"} <= found.keys():
        n = found["places"].size
    shape = (n, *receipt.entry.data[one.dataset].shape)
    if not n or found["images"].dtype != np.uint8 or found["images"].shape != shape:
        raise ResultsError(f"{file}: expected images of 8 bits with places and scores")
    places = found["places"]
    most = receipt.entry.data[one.dataset].n
    if (
        places.ndim != 1
        or places.dtype.kind not in "iu"
        or len(set(places.tolist())) != n
        or not 0 <= places.min() <= places.max() < most
    ):
        raise ResultsError(f"{file}: expected {n} places below {most}, each one once")
    if found["scores"].shape != (n,) or not np.isfinite(found["scores"]).all():
        raise ResultsError(f"{file}: expected {n} finite scores")
    return found


def strongest(
    receipt: Receipt, found: Iterable[Break] | None = None
) -> dict[Measured, NDArray[np.float64]]:
    """Of what somebody broke, the strongest score of each image over all attacks."""
    stronger: dict[Measured, NDArray[np.float64]] = {}
    for one in breaks(receipt) if found is None else found:
        m, known = one.measured(receipt), arrays(receipt, one)
        now = stronger.get(m, receipt.scores(m))
        stronger[m] = _stronger(receipt, m, now, known["places"], known["scores"])
    return stronger


def _stronger(
    receipt: Receipt,
    m: Measured,
    now: NDArray[np.float64],
    places: Places,
    scores: NDArray[np.float64],
) -> NDArray[np.float64]:
    best = np.maximum if receipt.entry.data[m.dataset].role == "inside" else np.minimum
    after = now.copy()
    after[places] = best(now[places], scores)
    return after


def lowered_rows(receipt: Receipt) -> tuple[Row, ...]:
    """The rows that count: of the receipt, lowered by every break."""
    found = strongest(receipt)
    return tuple(recount(receipt, found)) if found else receipt.rows()


def lowest(rows: Iterable[Row], m: Measured, attack: str) -> float:
    """The lowest AUROC with both sides attacked (else with one) of a detector at a budget."""
    mine = [
        r
        for r in rows
        if r.metric == "auroc"
        and (r.model, r.detector, r.scenario) == (m.model, m.detector, f"{attack} {m.threat}")
    ]
    both = [r.value for r in mine if r.side == "both"]
    return min(both or [r.value for r in mine])


def try_images(
    w: Witness, images: ImageSet, by: str, *, on: str | None = None, detector: str | None = None
) -> Iterator[tuple[Measured, Break | None, str]]:
    """Attacked images, in the order of a set, against every detector and budget they may be of.

    Those that lower a number are kept. Yields what they were tried on, the break or None, and a
    sentence.
    """
    expect(bool(by.strip()) and by.isprintable(), "the name of who made the images", repr(by))
    wanted = _candidates(w.receipt, len(images), on, detector)
    levels = hashing.levels(images)
    for m in wanted:
        x = w.images(m.dataset)
        if images.shape != x.shape:
            raise InputError(f"expected images of shape {x.shape}, got {images.shape}")
        inside = parse(m.threat).contains(images.pixels(), x.pixels()).numpy()
        if not inside.any():
            yield m, None, f"no image is within {m.threat}"
            continue
        made = offer(w, m, levels[inside], np.flatnonzero(inside), by, "images")
        if made is None:
            yield m, None, f"{int(inside.sum())} images within {m.threat} lower nothing"
        else:
            yield m, made, f"AUROC {made.before:.4f} -> {made.after:.4f}, by {by}"


def _candidates(receipt: Receipt, n: int, on: str | None, detector: str | None) -> list[Measured]:
    attacked = [m for m in receipt.entry.measured if m.threat]
    sets = {m.dataset for m in attacked}
    outside = sorted(sets - {"inside"})
    dataset = on or (outside[0] if len(outside) == 1 else None)
    if dataset not in sets:
        raise InputError(
            f"expected --on with one of {', '.join(sorted(sets))}, got {dataset or 'none'}"
        )
    if n != receipt.entry.data[dataset].n:
        raise InputError(
            f"expected {receipt.entry.data[dataset].n} images, in the order of {dataset!r}, got "
            f"{n}: give the original where you have nothing better"
        )
    found = [m for m in attacked if m.dataset == dataset and detector in (None, m.detector)]
    if not found:
        known = ", ".join(sorted({m.detector for m in attacked}))
        raise InputError(f"expected a detector among {known}, got {detector!r}")
    return found


def offer(
    w: Witness, m: Measured, images: NDArray[np.uint8], places: Places, by: str, how: str
) -> Break | None:
    """Keep those of these images that are stronger than what is known, if a number falls."""
    receipt, known = w.receipt, strongest(w.receipt)
    now = known.get(m, receipt.scores(m))
    scored = w.scores(
        {m.detector: w.detectors[m.model, m.detector]},
        ImageSet(m.dataset, torch.from_numpy(images)),
    )[m.detector]
    sign = 1 if receipt.entry.data[m.dataset].role == "inside" else -1
    better = sign * (scored - now[places]) > w.tolerance(m, scored)
    if not better.any():
        return None
    images, places, scored = images[better], places[better], scored[better]
    after = known | {m: _stronger(receipt, m, now, places, scored)}
    name = receipt.entry.attack.name
    values = [lowest(recount(receipt, k), m, name) for k in (known, after)]
    if not values[1] < values[0] - LEAST:
        return None
    return _write(
        receipt, m, values, {"images": images, "places": places, "scores": scored}, by, how
    )


def _write(
    receipt: Receipt, m: Measured, values: list[float], kept: Arrays, by: str, how: str
) -> Break:
    content = as_bytes({k: np.ascontiguousarray(v) for k, v in kept.items()})
    made = Break(
        by=by,
        date=datetime.now(UTC).isoformat(timespec="microseconds"),
        how=how,
        receipt=receipt.digest,
        model=m.model,
        detector=m.detector,
        dataset=m.dataset,
        threat=m.threat,
        before=values[0],
        after=values[1],
        sha256=hashlib.sha256(content).hexdigest(),
    )
    store = Store(receipt.path)
    store.write_file(f"{BREAKS}/{made.name}.safetensors", content)
    text = json.dumps(asdict(made), indent=1) + "\n"
    store.write_file(
        f"{BREAKS}/{made.name}.json", text.encode()
    )  # last: it says the break is whole
    return made


def follow(receipt: Receipt) -> str:
    """Check of the tier schema: every break is whole, and its numbers follow from its scores."""
    _check_files(receipt)
    found, name = breaks(receipt), receipt.entry.attack.name
    known: dict[Measured, NDArray[np.float64]] = {}
    for one in found:
        m, more = one.measured(receipt), arrays(receipt, one)
        before = lowest(recount(receipt, known), m, name)
        now = known.get(m, receipt.scores(m))
        known[m] = _stronger(receipt, m, now, more["places"], more["scores"])
        after = lowest(recount(receipt, known), m, name)
        if max(abs(before - one.before), abs(after - one.after)) > LEAST:
            raise Refuted(
                f"the break by {one.by} says {one.before:.4f} -> {one.after:.4f} of {m.where()}, "
                f"its scores give {before:.4f} -> {after:.4f}"
            )
    return _told(found)


def _check_files(receipt: Receipt) -> None:
    """Nothing but breaks is among them."""
    for _, folders, names in os.walk(receipt.path / BREAKS):  # does not follow links
        for name in (*folders, *names):
            if not (_FILE.fullmatch(name) and receipt.folder.has(f"{BREAKS}/{name}")):
                raise Refuted(f"{name!r} is among the breaks, and is none")


def hold(w: Witness) -> str:
    """Check of the tier rescore: images of breaks are within their budgets, with those scores."""
    found = breaks(w.receipt)
    for one in found:
        m, known = one.measured(w.receipt), arrays(w.receipt, one)
        images = ImageSet(one.dataset, torch.from_numpy(known["images"]))
        x = w.images(one.dataset).take(torch.from_numpy(known["places"])).pixels()
        if outside := int((~parse(one.threat).contains(images.pixels(), x)).sum()):
            raise Refuted(f"{m.where()}: {outside} images of the break by {one.by} are outside")
        detector = w.detectors[m.model, m.detector]
        scores = w.scores({m.detector: detector}, images)[m.detector]
        said = known["scores"].astype(np.float64)
        check_equal(said, scores, w.tolerance(m, said), f"{m.where()}, the break by {one.by}")
    return _told(found)


def _told(found: list[Break]) -> str:
    if not found:
        return "nobody has lowered a number"
    last = {(b.model, b.detector, b.threat): b for b in found}
    lines = (f"{b.model} {b.detector} {b.threat} to {b.after:.4f} by {b.by}" for b in last.values())
    return "; ".join(lines)
