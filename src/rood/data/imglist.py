"""Image lists as OpenOOD has them."""

from pathlib import Path

from rood.data._cache import cached, listing
from rood.data._paths import expanded
from rood.data._reading import Reading, shown, used
from rood.data.base import ImageSet, Shape, Source, spaced
from rood.errors import DataError

ROOTS = ("images_classic", "images_largescale", "images_medical", ".")  # beside benchmark_imglist


class Imglist(Source):
    """A text file with a path and a label a line: LIST.txt, or LIST.txt@ROOT for other roots.

    Without ROOT the images lie where OpenOOD 1.5 puts them, in images_classic or images_largescale
    beside the folder benchmark_imglist. A label of -1 is none. Paths may hold spaces.
    """

    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> ImageSet:
        list_name, _, root_name = argument.partition("@")
        path = expanded(list_name)
        lines = _lines(path)
        root = expanded(root_name) if root_name else _root(path, lines[0][0])
        chosen = [lines[i] for i in spaced(len(lines), limit)]
        files = [root / name for name, _ in chosen]
        if gone := [f for f in files if not f.is_file()]:
            raise DataError(
                f"expected the {len(files)} files that {shown(path)} lists in {shown(root)}, "
                f"got none called {gone[0].relative_to(root).as_posix()!r} "
                f"({len(gone)} missing): say LIST@ROOT"
            )

        def read() -> ImageSet:
            reading = Reading(shape)
            for file, (name, label) in zip(files, chosen, strict=True):
                reading.add(file, label, skip_bad, name=name, where=shown(file))
            labelled = any(label >= 0 for label in reading.labels)
            notes = [] if len(chosen) == len(lines) else [used(len(chosen), len(lines))]
            return reading.image_set(path.stem, shown(path), labelled=labelled, notes=notes)

        key = (path.resolve(), root.resolve(), chosen, shape, skip_bad, listing(files))
        return cached(read, "imglist", *key)


def _lines(path: Path) -> list[tuple[str, int]]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"expected a list of images, but {shown(path)} {what}")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"expected a list of images as UTF-8 text, got {shown(path)}") from error
    found: list[tuple[str, int]] = []
    for i, line in enumerate(lines, start=1):
        if not line:
            continue
        name, _, label = line.rpartition(" ")
        try:
            found.append((name.strip(), int(label)))
        except ValueError as error:
            raise DataError(
                f"expected a path and a whole number in line {i} of {shown(path)}, got {line!r:.80}"
            ) from error
        if not name or found[-1][1] < -1 or ".." in Path(name).parts or Path(name).is_absolute():
            raise DataError(
                f"expected a path below the root and a label from -1 in line {i} of "
                f"{shown(path)}, got {line!r:.80}"
            )
    if not found:
        raise DataError(f"expected a path and a label a line in {shown(path)}, got an empty file")
    return found


def _root(path: Path, first: str) -> Path:
    """Where OpenOOD keeps the images of a list."""
    for folder in path.resolve().parents:
        if folder.name == "benchmark_imglist":
            for name in ROOTS:
                if (folder.parent / name / first).is_file():
                    return folder.parent / name
    return path.resolve().parent
