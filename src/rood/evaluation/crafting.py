"""Attacked images for one detector: crafted, saved, read back, and scored as saved.

images/00000.png …   8 bits per channel, within the threat; or attacked.npz, all images as float
scores.csv           one row per image, written as they are made, with a checksum of row and image
manifest.json        settings, threshold, versions, hardware
"""

import csv
import hashlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePath
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image

from rood import data, detectors
from rood._files import Folder, for_spreadsheets, from_spreadsheets
from rood.attacks.base import Attack, Best, Goal
from rood.attacks.worst_of import WorstOf
from rood.data.base import ImageSet, at_once
from rood.data.images import decode
from rood.detectors.base import Detector
from rood.errors import ResultsError, RoodWarning
from rood.evaluation.behaviour import behaviour, renew
from rood.evaluation.effort import Counts, of_attack, usual
from rood.evaluation.manifest import full_precision, hardware, versions
from rood.evaluation.plan import check_numbers, settings_of
from rood.evaluation.prepare import made_attack, prepare
from rood.evaluation.settings import AuditSettings, with_images
from rood.evaluation.steps import Meter, Step
from rood.evaluation.store import Store, readable_errors
from rood.evaluation.tasks import join, score_clean, ticking
from rood.goals import look_in, look_out
from rood.metrics import Interval, threshold_at_tpr, wilson
from rood.registry import unknown
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import Threat, parse, to_8_bit

Direction = Literal["look_in", "look_out"]
FORMATS = {"png": ".png", "npz": ".npy"}  # of one image; .npy files are bundled at the end
GOALS: dict[str, Callable[[Detector], Goal]] = {"look_in": look_in, "look_out": look_out}
COLUMNS = (
    "image",
    "file",
    "source",  # the file it was made of, where there is one
    "label",
    "score_before",
    "score_after",  # of the float image that the attack found
    "score_saved",  # of the image as it was read back from disk
    "norm_saved",
    "accepted_before",
    "accepted_after",  # as saved
    "checksum",  # of the other cells and of the image's file
)
TABLE, IMAGES = 1 << 30, 64 << 30  # bytes that scores.csv and attacked.npz may have


class Crafted(NamedTuple):
    """Attacked images, and scores of the originals and of the attacked images."""

    images: Images
    before: Scores
    after: Scores  # of what the attack found, before rounding
    rounded: Scores  # of `images`; equal to `after` without rounding


def craft(
    detector: Detector,  # fitted
    images: Images,
    threat: Threat,
    *,
    direction: Direction = "look_in",
    attack: Attack | None = None,  # None: WorstOf()
    seed: int = 0,
    eight_bit: bool = False,  # round to n/255, as image files do, within the threat
) -> Crafted:
    """Make each image look ID (or OOD) to the detector; never worse than the image itself."""
    if direction not in GOALS:
        raise unknown("direction", direction, GOALS)
    goal, attack, x = GOALS[direction](detector), attack or WorstOf(), images.detach()
    sign = -1 if direction == "look_in" else 1
    with torch.no_grad():
        before = sign * detector.score(x)
        best, kept = Best(x), Best(x)
        for candidates in (best, kept):
            candidates.offer(x, before)
        for i, aim in enumerate(attack.aims(goal)):
            # a fresh generator per batch: an image's noise depends on its pixels, not on its batch
            found = attack(aim, x, threat, generator(seed, "craft", direction, str(threat), i))
            best.offer(found, goal(found))
        final = to_8_bit(best.x, x, threat) if eight_bit else best.x
        kept.offer(final, goal(final))
    return Crafted(kept.x, sign * before, sign * best.value, sign * kept.value)


@dataclass(frozen=True)
class Summary:
    """The effect of the attack on the images, as saved."""

    n: int
    accepted_before: Interval
    accepted_after: Interval
    shift: float  # the median change of a score


@dataclass(frozen=True)
class ScoresTable:
    """scores.csv. A row that a kill cut short does not count."""

    path: Path

    @property
    def _folder(self) -> Folder:
        return Folder(self.path.parent)

    def read(self) -> list[dict[str, str]]:
        """Every complete row, in order."""
        if not self._folder.has(self.path.name):
            return []
        with readable_errors(self.path):
            text = self._folder.read(self.path.name, TABLE).decode("utf-8", errors="replace")
        text = text[: text.rfind("\n") + 1]
        try:
            names, *rows = list(csv.reader(io.StringIO(text, newline=""))) or [list(COLUMNS)]
        except csv.Error as e:  # such as a cell without end
            raise self._another() from e
        if tuple(names) not in (COLUMNS, COLUMNS[:-1]):  # rood 0.1 wrote no checksums
            raise self._another()
        whole = [map(from_spreadsheets, row) for row in rows if len(row) == len(COLUMNS)]
        return [dict(zip(COLUMNS, row, strict=True)) for row in whole]

    def _another(self) -> ResultsError:
        return ResultsError(
            f"expected the scores of attacked images in {self.path}, got another table: "
            "choose another folder"
        )

    def begin(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Write the table with these rows only."""
        with readable_errors(self.path):
            content = _lines([COLUMNS, *(tuple(r.values()) for r in rows)])
            self._folder.write(self.path.name, content)

    def append(self, rows: Iterable[Sequence[object]]) -> None:
        """Put rows on disk, in order."""
        with readable_errors(self.path):
            self._folder.append(self.path.name, _lines(rows))

    def summary(self) -> Summary:
        """Shares accepted before and after, and the median shift of the score."""
        rows = self.read()
        n = len(rows)
        before, after = (
            wilson(sum(r[column] == "yes" for r in rows) / n, n)
            for column in ("accepted_before", "accepted_after")
        )
        shift = median(float(r["score_saved"]) - float(r["score_before"]) for r in rows)
        return Summary(n, before, after, shift)


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    cells = (map(for_spreadsheets, row) for row in rows)
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue().encode()


def plan_crafting(s: AuditSettings, images: str | None, direction: str, kind: str) -> "Crafting":
    """Load, fit and calibrate as an audit does, for one detector and one threat.

    images: what to attack; None, or the ID images themselves: the part of those that neither fitted
    nor calibrated anything.
    """
    for what, name, known in (("direction", direction, GOALS), ("format", kind, FORMATS)):
        if name not in known:
            raise unknown(what, name, known)
    (detector_name,), (text,) = s.detectors, s.threats
    detectors.registry.get(detector_name)  # "all" is none
    check_numbers(s.seed, s.batch_size)
    threat, attack = parse(text), made_attack(s)
    s = with_images(s, outside=False)
    bench = prepare(s)
    ((_, fitted),) = bench.detectors.items()
    tested = bench.inside.thin(s.limit)
    if images is None or images == s.inside:
        # hashed as rood 0.1 did, so that its folders can be continued
        hashed = data.load(s.inside, shape=tested.shape, limit=s.limit, skip_bad=s.skip_bad)
        attacked = tested
    else:
        hashed = attacked = bench.load(images, s)
    sets = {"calibrate": bench.calibrate, "inside": tested, "images": hashed}
    settings = settings_of(bench.detectors, sets, [threat], attack, s.seed)
    batch_size = s.batch_size or at_once(tested.shape)
    with full_precision():
        scores = join(list(score_clean(fitted, bench.calibrate, batch_size)))
    return Crafting(
        detector=fitted[detector_name],
        images=attacked,
        threat=threat,
        direction=direction,  # type: ignore[arg-type]
        attack=attack,
        threshold=threshold_at_tpr(scores[detector_name]),
        settings=settings | {"direction": direction, "format": kind},
        kind=kind,
        seed=s.seed,
        batch_size=batch_size,
    )


@dataclass(frozen=True, kw_only=True)
class Crafting:
    """An attack on one detector with one set and one threat, and how its images are saved."""

    detector: Detector
    images: ImageSet
    threat: Threat
    direction: Direction
    attack: Attack
    threshold: float  # an image is accepted if its score is at most this
    settings: Mapping[str, Any]  # what runs that share a folder must have in common
    kind: str
    seed: int
    batch_size: int

    def run(self, out: Path) -> Iterator[Step]:
        """Attack all images, writing to `out` as they are made; a second run continues."""
        store, table, n = Store(out), ScoresTable(out / "scores.csv"), len(self.images)
        with full_precision(), store.opened(self.settings):
            self._renew(store, table)
            done = self._kept(out, table)
            meter = Meter(n, self._size, self._passes, lambda _: self.images.name, done=done)
            yield meter.step(self.images.name)
            while done < n:
                meter.part(done, 0.0)
                with ticking(self.detector.model, partial(meter.part, done)):
                    rows = self._batch(out, done)
                meter.whole(done)
                # not sooner: a run that fails at once must not claim the folder for its settings
                store.write_json("manifest.json", self._manifest(finished=False))
                table.append(rows)
                done += len(rows)
                yield meter.step(self.images.name)
            if self.kind == "npz":
                self._bundle(out)
            store.write_json("manifest.json", self._manifest(finished=True))

    def _size(self, start: int) -> int:
        """Images of the batch that begins there."""
        return min(self.batch_size, len(self.images) - start)

    def _passes(self, start: int) -> float:
        """What its attack should take, in forward passes of one image."""
        variants = len(GOALS[self.direction](self.detector).variants)
        counts = Counts(self._size(start), 0, 0)
        return of_attack(usual(self.detector), self.attack, variants, counts)

    def _renew(self, store: Store, table: ScoresTable) -> None:
        """Begin anew if network, detector or attack is another than in the folder."""
        ((model, ds),) = self.settings["detectors"].items()
        detectors = {model: dict.fromkeys(ds, self.detector)}

        def forget(_: object) -> None:
            table.begin([])
            with readable_errors(store.path):
                store.folder.remove("attacked.npz")
                store.folder.remove_tree("images")

        found = behaviour(detectors, self.images, self.attack, [self.threat])
        renew(store, found, begun=bool(table.read()), forget=forget)

    def _kept(self, out: Path, table: ScoresTable) -> int:
        """How many images are there already, as written; an incomplete batch is repeated."""
        rows, n = table.read()[: len(self.images)], len(self.images)
        folder = Folder(out)
        bundled = _bundled(folder) if self.kind == "npz" else None

        def intact(i: int) -> bool:
            if rows[i]["image"] != str(i) or (bundled is not None and i >= len(bundled)):
                return False
            try:
                file = self._file(i)
                content = folder.read(file) if bundled is None else _encoded(file, bundled[i])
            except OSError:
                return False
            *cells, checksum = rows[i].values()
            return checksum == _checksum(cells, content)

        whole = len(list(takewhile(intact, range(len(rows)))))
        if whole < len(rows):
            text = f"rows or images of {out} are incomplete or damaged: they are made again"
            warnings.warn(text, RoodWarning, stacklevel=2)
        kept = (
            whole if whole == n else 0 if bundled is not None else whole - whole % self.batch_size
        )
        if bundled is not None and kept < n:
            with readable_errors(out):
                folder.remove("attacked.npz")
        table.begin(rows[:kept])
        return kept

    def _batch(self, out: Path, start: int) -> list[Sequence[object]]:
        places = range(start, start + self._size(start))
        part = self.images.take(torch.tensor(places))
        x = part.pixels().to(self.detector.model.mean)
        crafted = craft(
            self.detector,
            x,
            self.threat,
            direction=self.direction,
            attack=self.attack,
            seed=self.seed,
            eight_bit=self.kind == "png",
        )
        saved, contents = torch.empty_like(x), []
        for i, place in enumerate(places):
            contents.append(_encoded(self._file(place), crafted.images[i].cpu()))
            _save(out, self._file(place), contents[i])
            saved[i] = _read(out, self._file(place), channels=x.shape[1]).to(x)
        if not bool(self.threat.contains(saved, x).all()):
            raise ResultsError(f"expected files within {self.threat} in {out}, read back others")
        with torch.no_grad():
            score = self.detector.score(saved)
        numbers = torch.stack([crafted.before, crafted.after, score, self.threat.size(saved - x)])
        numbers = numbers.double()
        cells = (self._cells(p, part, i, numbers[:, i].tolist()) for i, p in enumerate(places))
        return [(*row, _checksum(row, c)) for row, c in zip(cells, contents, strict=True)]

    def _cells(self, place: int, part: ImageSet, i: int, numbers: list[float]) -> list[str]:
        before, _, saved, _ = numbers
        label = -1 if part.labels is None else int(part.labels[i])
        name = f"images/{place:05}.png" if self.kind == "png" else "attacked.npz"
        cells = (
            place,
            name,
            part.files[i] if part.files else "",
            "" if label < 0 else label,
            *(f"{v:.9g}" for v in numbers),  # enough digits to distinguish float32 numbers
            *("yes" if score <= self.threshold else "no" for score in (before, saved)),
        )
        return list(map(str, cells))

    def _file(self, place: int) -> PurePath:
        return PurePath("images", f"{place:05}{FORMATS[self.kind]}")

    def _bundle(self, out: Path) -> None:
        """All float images as one archive, as `npz:` reads it."""
        folder = Folder(out)
        if not folder.has("attacked.npz"):
            files = map(self._file, range(len(self.images)))
            arrays = {"images": np.stack([_read(out, f).numpy() for f in files])}
            if self.images.labels is not None:
                arrays["labels"] = self.images.labels.numpy()
                if self.images.classes:
                    arrays["classes"] = np.array(self.images.classes)
            content = io.BytesIO()
            np.savez(content, **arrays)  # type: ignore[arg-type]
            with readable_errors(out):
                folder.write("attacked.npz", content.getvalue())
        with readable_errors(out):
            folder.remove_tree("images")

    def _manifest(self, *, finished: bool) -> dict[str, Any]:
        return {
            "finished": finished,
            "settings": self.settings,
            "threshold": self.threshold,
            "source": self.images.name,
            "n": len(self.images),
            "notes": list(self.images.notes),
            "versions": versions(),
            "hardware": hardware(self.detector.model.mean.device),
        }


def _checksum(cells: Iterable[str], content: bytes) -> str:
    return hashlib.sha256("\x1f".join(cells).encode() + content).hexdigest()[:16]


def _encoded(file: PurePath, image: torch.Tensor) -> bytes:
    """The content of the file of one image."""
    content = io.BytesIO()
    if file.suffix == ".png":
        levels = (image.double() * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        grey = levels.shape[2] == 1
        Image.fromarray(levels[:, :, 0] if grey else levels).save(content, format="png")
    else:
        np.save(content, image.float().numpy(), allow_pickle=False)
    return content.getvalue()


def _bundled(folder: Folder) -> torch.Tensor | None:
    """The images of attacked.npz; None without one, and none of them where it is damaged."""
    if not folder.has("attacked.npz"):
        return None
    with readable_errors(folder.path / "attacked.npz"):
        content = folder.read("attacked.npz", IMAGES)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return torch.from_numpy(archive["images"])
    except Exception:  # zlib, zipfile and numpy each raise errors of their own
        return torch.empty(0)


def _save(out: Path, file: PurePath, content: bytes) -> None:
    with readable_errors(out / file):
        Folder(out).write(file, content)


def _read(out: Path, file: PurePath, channels: int = 0) -> torch.Tensor:
    """One image, (c, h, w): a PNG as every `folder:` of images is read."""
    with readable_errors(out / file):
        content = Folder(out).read(file)
    if file.suffix == ".png":
        pixels = decode(content, channels, shown=repr(str(out / file))).pixels
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
    return torch.from_numpy(np.load(io.BytesIO(content), allow_pickle=False))
