"""The tier `reattack`: `standard` on images that nobody could know when the receipt was issued."""

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from rood.attacks.worst_of import WorstOf
from rood.data.base import ImageSet
from rood.errors import RoodError, first_line
from rood.evaluation.attacked import attacked_scores
from rood.evaluation.manifest import full_precision
from rood.metrics import auroc
from rood.receipts.breaking import offer, strongest
from rood.receipts.entry import Measured
from rood.receipts.finding import Lacking, Refuted
from rood.receipts.rescoring import Witness
from rood.threat import parse, to_8_bit

IMAGES = 16  # of each set
WEAK = 0.1  # an AUROC that falls by more was not attacked in earnest
BY = "reattack"


def seed_of(digest: str, nonce: str) -> int:
    """The seed that follows from a receipt and a word chosen after it was issued."""
    return int.from_bytes(hashlib.sha256(f"{digest} {nonce}".encode()).digest()[:7], "big")


def chosen(n: int, seed: int, dataset: str) -> NDArray[np.int64]:
    """The places of the images to attack, sorted."""
    key = hashlib.sha256(f"{seed} {dataset}".encode()).digest()
    rng = np.random.default_rng(np.frombuffer(key, np.uint32))
    return np.sort(rng.permutation(n)[:IMAGES]).astype(np.int64)


def reattack(w: Witness, nonce: str) -> Iterator[tuple[str, str | Exception]]:
    """One result for each detector, set and budget. What is stronger is kept as a break."""
    seed = seed_of(w.receipt.digest, nonce)
    for m in w.receipt.entry.measured:
        if not m.threat:
            continue
        try:
            yield m.where(), _again(w, m, seed, nonce)
        except (Lacking, Refuted) as e:
            yield m.where(), e
        except (OSError, RoodError) as e:  # of this machine: the tiers below found no lie
            yield m.where(), Lacking(f"it was not attacked again: {first_line(e)}")


def _again(w: Witness, m: Measured, seed: int, nonce: str) -> str:
    places = chosen(w.receipt.entry.data[m.dataset].n, seed, m.dataset)
    before = strongest(w.receipt).get(m, w.receipt.scores(m))[places]
    images = _attacked(w, m, places, seed)
    detector = w.detectors[m.model, m.detector]
    found = w.scores({m.detector: detector}, ImageSet(m.dataset, images))[m.detector]
    inside = w.receipt.entry.data[m.dataset].role == "inside"
    after = (np.maximum if inside else np.minimum)(before, found)
    shown, now = (_auroc(w, m, scores, inside) for scores in (before, after))
    made = offer(w, m, images.numpy(), places, BY, f"reattack {nonce}")
    text = f"{len(places)} images attacked again: AUROC {shown:.3f} -> {now:.3f} on these"
    if shown - now > WEAK:
        raise Refuted(f"{text}, so the attack of the receipt gave up early")
    if made is not None:
        text += f"; the number shown falls from {made.before:.4f} to {made.after:.4f}"
    return text


def _attacked(w: Witness, m: Measured, places: NDArray[np.int64], seed: int) -> torch.Tensor:
    """The images that the standard attack finds, in 8 bits."""
    inside = w.receipt.entry.data[m.dataset].role == "inside"
    detector, threat = w.detectors[m.model, m.detector], parse(m.threat)
    x = w.images(m.dataset).take(torch.from_numpy(places)).pixels()
    x = x.to(detector.model.mean)
    with full_precision():
        found = attacked_scores(
            detector,
            x,
            "inside" if inside else "outside",
            threat,
            WorstOf(tier="standard"),
            past=_past(w, m, inside),
            exemplars=None if inside else w.images("calibrate").thin(200).pixels().to(x),
            seed=seed,
            purpose=("reattack", m.model, m.detector, m.dataset, m.threat),
            batch_size=w.at_once(),
        )
    return (255 * to_8_bit(found.images, x, threat)).round().byte().cpu()


def _past(w: Witness, m: Measured, inside: bool) -> float:
    """Beyond every score of the other side, attacked ones too, no rank can change."""
    role = "outside" if inside else "inside"
    scores = [
        w.receipt.scores(o)
        for o in w.receipt.entry.measured
        if (o.model, o.detector) == (m.model, m.detector)
        and w.receipt.entry.data[o.dataset].role == role
        and o.dataset != "calibrate"
    ]
    every = np.concatenate(scores) if scores else np.array([-math.inf if inside else math.inf])
    return float(every.max() if inside else every.min())


def _auroc(w: Witness, m: Measured, scores: NDArray[np.float64], inside: bool) -> float:
    """Of some attacked images against the clean images of the other side; the hardest set."""
    role = "outside" if inside else "inside"
    others = [
        w.receipt.scores(o)
        for o in w.receipt.entry.measured
        if (o.model, o.detector, o.threat) == (m.model, m.detector, "")
        and w.receipt.entry.data[o.dataset].role == role
        and o.dataset != "calibrate"
    ]
    if inside:
        return min(auroc(inside=scores, outside=o) for o in others)
    return min(auroc(inside=o, outside=scores) for o in others)
