"""Every file, option and folder that a user or a stranger can give to rood, and who reads it."""

import functools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import mutations as m
from campaign.flips import checkpoint, compared, guarded, verified
from campaign.forked import Ending, command, forked
from campaign.table import Case, Verdict
from campaign.world import World
from rood.guard import disk
from rood.models.checkpoint import SEAL as CARD_SEAL
from rood.receipts.entry import SEAL as RECEIPT_SEAL

GUARD = "reference/fit/out/guard.json"
STATE = "interrupted/train/out/net.safetensors.training/state.json"
Reader = Callable[[Path], Any]  # gets the changed file; its value is what rood understood


@dataclass(frozen=True)
class Surface:
    """One kind of file."""

    name: str
    source: str  # the whole file: a path in the world; its folder is copied with it
    read: Reader
    changes: tuple[m.Change, ...]
    protected: bool  # by a checksum: another value than before is silently wrong
    inputs: int  # how many changed files to try


def surfaces() -> tuple[Surface, ...]:
    """All files that are read."""
    json, lines, tensors = (
        (m.spoil_json, m.spoil_bytes),
        (m.spoil_lines, m.spoil_text),
        (m.spoil_safetensors,),
    )
    text, archive = (m.spoil_text, m.spoil_bytes), (m.spoil_zip,)
    audit, attack, rows = "reference/audit/out", "reference/attack/out", "rows.jsonl"
    receipt, entry = "reference/receipt/out", "reference/receipt/out/entry.json"
    return (
        Surface(
            "audit.toml", "files/audit.toml", _planned, (m.spoil_toml, m.spoil_text), False, 500
        ),
        Surface(
            "train.toml", "files/train.toml", _recipe, (m.spoil_toml, m.spoil_text), False, 600
        ),
        Surface("checkpoint card", "files/net.json", _card, json, True, 900),
        Surface(
            "card of a stranger", "files/net.json", _card, (m.resealed(CARD_SEAL),), False, 900
        ),
        Surface("checkpoint weights", "files/net.safetensors", checkpoint, tensors, True, 900),
        Surface("weights of others", "files/other.safetensors", _state, tensors, False, 700),
        Surface("weights .pth", "files/other.pth", _state, archive, False, 700),
        Surface("program .pt2", "files/program.pt2", _program, archive, False, 200),
        Surface("program .pt", "files/program.pt", _program, archive, False, 200),
        Surface("npz images", "files/packed.npz", _images("npz"), archive, False, 1200),
        Surface("image list", "files/list.txt", _images("imglist"), text, False, 600),
        Surface("image png", "files/pictures/a/0.png", _pictures, (m.spoil_bytes,), False, 400),
        Surface("image jpeg", "files/pictures/b/1.jpeg", _pictures, (m.spoil_bytes,), False, 400),
        Surface("image webp", "files/pictures/c/2.webp", _pictures, (m.spoil_bytes,), False, 400),
        Surface("image tiff", "files/pictures/a/3.tiff", _pictures, (m.spoil_bytes,), False, 400),
        Surface("image gif", "files/pictures/b/4.gif", _pictures, (m.spoil_bytes,), False, 400),
        Surface("guard card", GUARD, _guard, json, True, 500),
        Surface("guard of a stranger", GUARD, _guard, (m.resealed(disk.SEAL),), False, 700),
        Surface(
            "guard tensors", "reference/fit/out/detector.safetensors", _guard, tensors, True, 400
        ),
        Surface("results rows", f"{audit}/{rows}", _report, lines, False, 400),
        Surface("results manifest", f"{audit}/manifest.json", _report, json, False, 300),
        Surface("results scores", f"{audit}/scores", _report, tensors, False, 120),
        Surface("results examples", f"{audit}/examples", _report, tensors, False, 120),
        Surface("attack table", f"{attack}/scores.csv", _again("attack"), text, True, 80),
        Surface("attack manifest", f"{attack}/manifest.json", _again("attack"), json, True, 80),
        Surface("training state", STATE, _again("train"), json, True, 80),
        Surface("state of a stranger", STATE, _again("train"), (m.resealed(CARD_SEAL),), False, 80),
        Surface("reproduction rows", f"reference/reproduce/out/{rows}", _page, lines, False, 60),
        Surface(
            "reproduction parts", "reference/reproduce/out/parts.jsonl", _page, lines, False, 60
        ),
        Surface("receipt entry", entry, _receipt, json, True, 300),
        Surface("receipt of a stranger", entry, _receipt, (m.resealed(RECEIPT_SEAL),), False, 400),
        Surface("receipt rows", f"{receipt}/{rows}", _receipt, lines, True, 100),
        Surface("receipt manifest", f"{receipt}/manifest.json", _receipt, json, True, 60),
        Surface("receipt scores", f"{receipt}/scores", _receipt, tensors, True, 100),
        Surface("receipt images", f"{receipt}/adversarial", _receipt, tensors, True, 100),
        Surface("receipt hashes", f"{receipt}/hashes.safetensors", _receipt, tensors, True, 60),
        Surface("cache card", "cache/*.json", _cached, json, True, 300),
        Surface("cache pixels", "cache/*.npy", _cached, (m.spoil_bytes,), True, 200),
    )


def cases(world: World) -> Iterator[Case]:
    """Mutated files and options, the same ones every time."""
    part = functools.partial
    for surface in surfaces():
        for what in m.odd_kinds():
            yield Case("inputs", surface.name, what, part(_odd, world, surface, what))
        for seed in range(surface.inputs - len(m.odd_kinds())):
            yield Case("inputs", surface.name, str(seed), part(mutated, world, surface, seed))
    for seed in range(OPTION_INPUTS):
        yield Case("inputs", "options", str(seed), part(option, world, seed))


def mutated(world: World, surface: Surface, seed: int) -> Verdict:
    """Change one file and let rood read it."""
    rng = random.Random(f"{surface.name} {seed}")

    def change(path: Path) -> None:
        path.write_bytes(rng.choice(surface.changes)(path.read_bytes(), rng))

    return tried(world, surface, change)


def _odd(world: World, surface: Surface, what: str) -> Verdict:
    def change(path: Path) -> None:
        path.unlink()
        m.odd_kinds()[what](path)

    return tried(world, surface, change)


def tried(world: World, surface: Surface, change: Callable[[Path], None]) -> Verdict:
    """Read a copy of the file, changed, and judge by what the whole one gives."""
    source = _source(world, surface)
    top = world.root / surface.source.split("/")[0]
    top = source.parent if top.name in ("cache",) else _folder_of(world, source)
    with world.folder() as folder:
        shutil.copytree(top, folder / "out", symlinks=True)
        changed = folder / "out" / source.relative_to(top)
        change(changed)
        found = forked(lambda: _in(folder, surface.read, changed))
    return compared(_wanted(world, surface, source, top), found, protected=surface.protected)


def _folder_of(world: World, source: Path) -> Path:
    """The folder that rood would read: an `out`, or the folder of small files."""
    return next((p for p in source.parents if p.name == "out"), world.files)


def _source(world: World, surface: Surface) -> Path:
    path = world.root / surface.source
    if path.is_dir():
        return sorted(path.rglob("*.safetensors"))[0]
    return next(path.parent.glob(path.name))


_known: dict[str, Ending] = {}


def _wanted(world: World, surface: Surface, source: Path, top: Path) -> Ending:
    """What the whole file gives, found once by each worker."""
    if surface.name not in _known:
        with world.folder() as folder:
            shutil.copytree(top, folder / "out", symlinks=True)
            whole = folder / "out" / source.relative_to(top)
            _known[surface.name] = forked(lambda: _in(folder, surface.read, whole))
    return _known[surface.name]


def _in(folder: Path, read: Reader, path: Path) -> Any:
    os.chdir(folder)
    return read(path)


# --- readers: what rood makes of a file ---


def _planned(path: Path) -> Any:
    from rood import api
    from rood.evaluation.settings import read_settings

    settings = read_settings(path)
    plan = api.plan(settings, Path("nowhere"))
    return [repr(settings), sorted(plan.sets()), [str(t) for t in plan.threats]]


def _recipe(path: Path) -> Any:
    from rood import config
    from rood.training.recipe import read

    return repr(read(config.read(path), path.name))


def _card(path: Path) -> Any:
    return checkpoint(path.with_suffix(".safetensors"))


def _state(path: Path) -> Any:
    from rood.models.checkpoint import load_state

    return {k: [list(v.shape), str(v.dtype)] for k, v in load_state(path).items()}


def _program(path: Path) -> Any:
    from rood.errors import TrustError
    from rood.models.load import find_network

    try:
        return find_network(str(path)).name
    except TrustError:  # rood would let torch read it
        return "trusted"


def _images(kind: str) -> Reader:
    def read(path: Path) -> Any:
        from rood import data

        images = data.load(f"{kind}:{path}")
        pixels = images.pixels()
        assert pixels.min() >= 0
        assert pixels.max() <= 1
        return [images.fingerprint(), list(images.classes), list(images.shape)]

    return read


def _pictures(path: Path) -> Any:
    return _images("folder")(path.parents[1])


def _guard(path: Path) -> Any:
    return guarded(path.parent)


def _report(path: Path) -> Any:
    command(["report", "out"])


def _receipt(path: Path) -> Any:
    return verified(Path("out"))


def _again(name: str) -> Reader:
    def read(path: Path) -> Any:
        from campaign.world import content

        world = World(_root_of(path))
        try:
            command(world.arguments(name))
        except SystemExit as e:
            if e.code:
                raise
        stable = {
            k: v
            for k, v in content(Path("out")).items()
            if k.endswith((".png", ".csv", ".safetensors"))
        }
        return stable

    return read


def _root_of(path: Path) -> Path:
    return next(p for p in path.parents if p.name == "cases").parent


def _page(path: Path) -> Any:
    command(World(_root_of(path)).arguments("reproduce"))


def _cached(path: Path) -> Any:
    os.environ["ROOD_CACHE"] = str(path.parent)
    return _images("folder")(_root_of(path) / "files" / "pictures")


# --- options of the command line ---

OPTION_INPUTS = 520
OPTIONS = {
    "--model": "digits-ce",
    "--mean": "0.5,0.5,0.5",
    "--std": "0.5",
    "--size": "8x8",
    "--inside": "npz:FILES/inside.npz",
    "--outside": "far=npz:FILES/far.npz,limit=3",
    "--groups": "far=folder",
    "--train": "folder:FILES/pictures",
    "--detectors": "msp,knn",
    "--eps": "8/255,l2:0.5",
    "--attack": "pgd",
    "--tier": "quick",
    "--limit": "30",
    "--time": "10s",
    "--device": "cpu",
    "--seed": "3",
    "--batch-size": "7",
    "--fail-under": "0.5",
}


def option(world: World, seed: int) -> Verdict:
    """Give an odd value to one option of an audit; nothing is attacked where it is valid."""
    rng = random.Random(f"options {seed}")
    name = rng.choice(sorted(OPTIONS))
    value = OPTIONS[name].replace("FILES", str(world.files)).encode()
    odd = m.spoil_text(value, rng).replace(b"\x00", b"").decode("utf-8", "surrogateescape")

    def work() -> None:
        from rood import api
        from rood.errors import RoodError

        def stop(*args: object, **more: object) -> None:
            raise RoodError("planned: nothing more to do")

        api.carry_out = stop  # type: ignore[assignment]
        os.chdir(folder)
        command([*world.arguments("audit"), name, odd])

    with world.folder() as folder:
        ended = forked(work)
    if ended.how == "refused":
        kind = "other input" if "planned:" in ended.said else "clean error"
        return Verdict(kind, ended.said, ended.memory)
    return Verdict(ended.bad or "traceback", f"{name} {odd!r}\n{ended.said}")
