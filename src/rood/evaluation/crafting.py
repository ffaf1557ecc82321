"""Attacked images on disk: crafted, saved, read back, and measured as they were saved.

images/00000.png …   8 bits a pixel, within the threat; or attacked.npz, all images as float
scores.csv           one row an image, written as they are made
manifest.json        settings, threshold, versions, hardware
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rood import detectors
from rood._files import write_whole
from rood.attacks.base import Attack
from rood.data.base import ImageSet
from rood.data.images import read_image
from rood.detectors.base import Detector
from rood.errors import ResultsError
from rood.evaluation.craft import GOALS, Direction, craft
from rood.evaluation.manifest import full_precision, hardware, versions
from rood.evaluation.run import Step
from rood.evaluation.scores_table import ScoresTable
from rood.evaluation.settings import AuditSettings
from rood.evaluation.settings import prepare as prepare_audit
from rood.evaluation.store import Folder, said_plainly
from rood.evaluation.unit import join, score_clean
from rood.metrics import threshold_at_tpr
from rood.registry import unknown
from rood.threat import Threat

FORMATS = {"png": ".png", "npz": ".npy"}  # of one image; the latter are put together at the end


def prepare(settings: AuditSettings, direction: str, kind: str) -> "Crafting":
    """Load, fit and calibrate as an audit does; the images to attack are its one outside set.

    Where those are the in-distribution images themselves, the part of them that neither fitted nor
    calibrated anything is attacked.
    """
    for what, name, known in (("direction", direction, GOALS), ("format", kind, FORMATS)):
        if name not in known:
            raise unknown(what, name, known)
    (detector_name,) = settings.detectors
    ((set_name, spec),) = settings.outside.items()
    detectors.registry.get(detector_name)  # "all" is none
    plan, _ = prepare_audit(settings)
    ((_, fitted),) = plan.detectors.items()
    with full_precision():
        scores = join(list(score_clean(fitted, plan.calibrate, plan.at_once())))
    (threat,) = plan.ordered_threats()
    return Crafting(
        detector=fitted[detector_name],
        images=plan.inside if spec == settings.inside else plan.outside[set_name],
        threat=threat,
        direction=direction,  # type: ignore[arg-type]
        attack=plan.attack,
        threshold=threshold_at_tpr(scores[detector_name]),
        settings=plan.settings() | {"direction": direction, "format": kind},
        kind=kind,
        seed=plan.seed,
        batch_size=plan.at_once(),
    )


@dataclass(frozen=True, kw_only=True)
class Crafting:
    """Attacked images of one detector, one set and one threat, and how they are written down."""

    detector: Detector
    images: ImageSet
    threat: Threat
    direction: Direction
    attack: Attack
    threshold: float  # an image is accepted where its score is at most this
    settings: Mapping[str, Any]  # what two runs must have in common to share a folder
    kind: str
    seed: int
    batch_size: int

    def run(self, out: Path) -> Iterator[Step]:
        """Everything, written to `out` as it is made; a second run goes on with what is missing."""
        folder, table, n = Folder(out), ScoresTable(out / "scores.csv"), len(self.images)
        with full_precision(), folder.opened(self.settings):
            done = self._kept(out, table)
            yield Step(self.images.name, done, n)
            while done < n:
                rows = self._batch(out, done)
                # not before: a run that fails at once must not keep the folder for its settings
                folder.write_json("manifest.json", self._manifest(finished=False))
                table.append(rows)
                done += len(rows)
                yield Step(self.images.name, done, n)
            if self.kind == "npz":
                self._bundle(out)
            folder.write_json("manifest.json", self._manifest(finished=True))

    def _kept(self, out: Path, table: ScoresTable) -> int:
        """How many images are there already; a batch of which some are missing comes again."""
        rows, n = table.read(), len(self.images)
        bundled = self.kind == "npz" and (out / "attacked.npz").exists()

        def there(i: int) -> bool:
            return rows[i]["image"] == str(i) and (bundled or self._file(out, i).exists())

        whole = len(list(takewhile(there, range(min(n, len(rows))))))
        kept = whole if whole == n else whole - whole % self.batch_size
        table.begin(rows[:kept])
        return kept

    def _batch(self, out: Path, start: int) -> list[Sequence[object]]:
        places = range(start, min(start + self.batch_size, len(self.images)))
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
        saved = torch.empty_like(x)
        for i, place in enumerate(places):
            file = self._file(out, place)
            _save(file, crafted.images[i].cpu())
            saved[i] = _read(file, channels=x.shape[1]).to(x)
        if not bool(self.threat.contains(saved, x).all()):
            raise ResultsError(f"expected files within {self.threat} in {out}, read back others")
        with torch.no_grad():
            score = self.detector.score(saved)
        numbers = torch.stack([crafted.before, crafted.after, score, self.threat.size(saved - x)])
        return [
            self._row(place, part, i, numbers[:, i].double().tolist())
            for i, place in enumerate(places)
        ]

    def _row(self, place: int, part: ImageSet, i: int, numbers: list[float]) -> Sequence[object]:
        before, _, saved, _ = numbers
        label = -1 if part.labels is None else int(part.labels[i])
        name = f"images/{place:05}.png" if self.kind == "png" else "attacked.npz"
        return (
            place,
            name,
            part.files[i] if part.files else "",
            "" if label < 0 else label,
            *(f"{v:.9g}" for v in numbers),  # as many digits as tell float32 numbers apart
            *("yes" if score <= self.threshold else "no" for score in (before, saved)),
        )

    def _file(self, out: Path, place: int) -> Path:
        return out / "images" / f"{place:05}{FORMATS[self.kind]}"

    def _bundle(self, out: Path) -> None:
        """All float images as one archive, as `npz:` reads it."""
        files = [self._file(out, i) for i in range(len(self.images))]
        if not (out / "attacked.npz").exists():
            arrays = {"images": np.stack([_read(f).numpy() for f in files])}
            if self.images.labels is not None:
                arrays["labels"] = self.images.labels.numpy()
                if self.images.classes:
                    arrays["classes"] = np.array(self.images.classes)
            content = io.BytesIO()
            np.savez(content, **arrays)  # type: ignore[arg-type]
            with said_plainly(out):
                write_whole(out / "attacked.npz", content.getvalue())
        with said_plainly(out):
            for file in files:
                file.unlink(missing_ok=True)
            if (out / "images").exists():
                (out / "images").rmdir()

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


def _save(file: Path, image: torch.Tensor) -> None:
    content = io.BytesIO()
    if file.suffix == ".png":
        levels = (image.double() * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        grey = levels.shape[2] == 1
        Image.fromarray(levels[:, :, 0] if grey else levels).save(content, format="png")
    else:
        np.save(content, image.float().numpy(), allow_pickle=False)
    with said_plainly(file):
        file.parent.mkdir(exist_ok=True)
        write_whole(file, content.getvalue())


def _read(file: Path, channels: int = 0) -> torch.Tensor:
    """One image, (c, h, w): a PNG as every `folder:` of images is read."""
    if file.suffix == ".png":
        return torch.from_numpy(read_image(file, channels).copy()).permute(2, 0, 1).float() / 255
    return torch.from_numpy(np.load(file, allow_pickle=False))
