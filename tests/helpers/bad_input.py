"""What tests of wrong input share: folders of images, a call of the command, what a refusal is."""

from PIL import Image
from small_audit import eight_bit, small_command
from typer.testing import CliRunner

from rood.cli import app
from rood.testing.world import stripes


def linked(files, folder):
    """The folder, with a link to each of the usual files."""
    for file in files.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def invoke(here, *more, toml=""):
    command, *rest = small_command(here, here / "out", *more)
    (here / "audit.toml").write_text(toml)
    return CliRunner().invoke(app, [command, str(here / "audit.toml"), *rest])


def refused(result, *words):
    assert result.exit_code == 1, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    *notes, line = result.stderr.splitlines()
    assert all(note.startswith("note: ") for note in notes)
    assert line.startswith("error: ")
    assert not line.endswith(".")
    assert all(word in line for word in words), line


def class_folder(root, images, labels, names=("a", "b", "c")):
    for i, (x, y) in enumerate(zip(eight_bit(images), labels.tolist(), strict=True)):
        (root / names[y]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(x.transpose(1, 2, 0)).save(root / names[y] / f"{i:03}.png")
    return root


def flat_folder(root, n=8):
    root.mkdir(parents=True)
    for i, x in enumerate(eight_bit(stripes(n, seed=3))):
        Image.fromarray(x.transpose(1, 2, 0)).save(root / f"{i}.png")
    return root


def corrupt(here):
    folder = flat_folder(here / "pictures")
    (folder / "3.png").write_bytes((folder / "3.png").read_bytes()[:40])
    return ["--outside", str(folder)]
