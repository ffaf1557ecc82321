"""Image lists in the format of OpenOOD."""

from pathlib import Path

from rood._files import expanded, shown
from rood.data._reading import Reading
from rood.data.base import ImageSet, LoadOptions, Source, limit_note, spaced
from rood.data.cache import cached, listing
from rood.data.folder import IN_ORDER
from rood.errors import DataError

ROOTS = ("images_classic", "images_largescale", "images_medical", ".")  # beside benchmark_imglist


class Imglist(Source):
    """A text file with a path and a label per line: LIST.txt, or LIST.txt@ROOT for another root.

    Without ROOT, images are looked for where OpenOOD 1.5 puts them: in images_classic or
    images_largescale beside the folder benchmark_imglist. -1 is no label. Paths may contain spaces.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        list_name, _, root_name = argument.partition("@")
        path = expanded(list_name)
        lines = _lines(path)
        root = expanded(root_name) if root_name else _root(path, lines[0][0])
        chosen = [lines[i] for i in spaced(len(lines), options.limit)]
        files = [root / name for name, _ in chosen]
        if gone := [f for f in files if not f.is_file()]:
            raise DataError(
                f"expected the {len(files)} files that {shown(path)} lists in {shown(root)}, "
                f"got none called {gone[0].relative_to(root).as_posix()!r} "
                f"({len(gone)} missing): say LIST@ROOT"
            )

        def read() -> ImageSet:
            reading = Reading(options)
            for file, (name, label) in zip(files, chosen, strict=True):
                reading.add(file, label, name=name, where=shown(file))
            notes = limit_note(len(chosen), len(lines), IN_ORDER)
            return reading.image_set(path.stem, shown(path), notes=notes)

        key = (path.resolve(), root.resolve(), chosen, options.shape, options.skip_bad)
        return cached(read, "imglist", *key, listing(files))


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
        raise DataError(f"expected a path and a label per line in {shown(path)}, got an empty file")
    return found


def _root(path: Path, first: str) -> Path:
    """The folder in which OpenOOD keeps the images of a list."""
    for folder in path.resolve().parents:
        if folder.name == "benchmark_imglist":
            for name in ROOTS:
                if (folder.parent / name / first).is_file():
                    return folder.parent / name
    return path.resolve().parent
