"""Flip one bit of each file that we write: the next reader repairs it or refuses it."""

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from campaign import kills
from campaign.forked import Ending, command, forked
from campaign.table import Case, Verdict
from campaign.world import COMMANDS, World
from rood.cli.verify import REFUTED
from rood.errors import RoodError

HALFWAY = 0.6  # of the events: where a run is interrupted whose files are damaged
ANEW = ("fit", "receipt")  # nothing that was interrupted is read again


def cases(world: World, flips: int) -> Iterator[Case]:
    """At least `flips` of them, spread over all files of finished and of interrupted runs."""
    folders = dict(_folders(world))
    files = [
        (row, name, file.relative_to(folder))
        for (row, name), folder in folders.items()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.stat().st_size
    ]
    each = -(-flips // len(files))
    for row, name, file in files:
        for i in range(each):
            place = folders[row, name]
            judge = functools.partial(flipped, world, name, place, file, i)
            yield Case("flips", row, f"{file} {i}", judge)


def interrupt(world: World) -> None:
    """Leave a folder of each command that continues as a kill halfway leaves it."""
    for name in set(COMMANDS).difference(ANEW):
        place = world.root / "interrupted" / name
        place.mkdir(parents=True)
        kills.cut_short(world, name, int(HALFWAY * kills.events(world, name)), place)


def _folders(world: World) -> Iterator[tuple[tuple[str, str], Path]]:
    for name in COMMANDS:
        yield (name, name), world.reference(name)
        if name not in ANEW:
            yield (f"{name}, interrupted", name), world.root / "interrupted" / name / "out"


def flipped(world: World, name: str, state: Path, file: Path, seed: int) -> Verdict:
    """Flip a bit of one file in a copy of a folder and read it."""
    rng = random.Random(f"{file} {seed}")
    with world.folder(filled_with=state) as folder:
        raw = bytearray((folder / "out" / file).read_bytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        (folder / "out" / file).write_bytes(raw)
        done = state == world.reference(name)
        if done and name in READERS:
            return _read(READERS[name], state, folder / "out")
        return _continued(world, name, folder)


def _continued(world: World, name: str, folder: Path) -> Verdict:
    ended = world.run(name, folder)
    if ended.how == "refused":  # nothing is claimed
        return Verdict("clean error", ended.said)
    if ended.bad:
        return Verdict(ended.bad, ended.said)
    wrong = world.differs(name, folder / "out")
    return Verdict("silently wrong" if wrong else "identical", wrong)


def _read(reader: Callable[[Path], object], whole: Path, damaged: Path) -> Verdict:
    wanted, found = forked(lambda: reader(whole)), forked(lambda: reader(damaged))
    return compared(wanted, found)


def compared(wanted: Ending, found: Ending, *, protected: bool = True) -> Verdict:
    """Judge what a reader made of a changed file, beside what it makes of the whole one."""
    assert wanted.how == "value", wanted.said
    if found.how == "refused":
        return Verdict("clean error", found.said, found.memory)
    if found.bad:
        return Verdict(found.bad, found.said)
    if found.value == wanted.value:
        return Verdict("identical")
    said = f"{str(found.value)[:300]} instead of {str(wanted.value)[:300]}"
    return Verdict("silently wrong" if protected else "other input", said)


def guarded(folder: Path) -> list[object]:
    """What a guard says about fixed images."""
    import torch

    from rood import Guard

    guard = Guard.load(folder)
    x = torch.rand(6, *guard.shape, generator=torch.Generator().manual_seed(0))
    label, score, accept = guard(x)
    return [label.tolist(), score.tolist(), accept.tolist(), guard.threshold, list(guard.classes)]


def network(folder: Path) -> list[object]:
    """What a trained network says about fixed images."""
    return checkpoint(folder / "net.safetensors")


def checkpoint(path: Path) -> list[object]:
    """The outputs of a checkpoint on fixed images, and the card's words that matter."""
    import torch

    from rood.models.load import load_network

    model, card = load_network(str(path))
    x = torch.rand(6, *card["shape"], generator=torch.Generator().manual_seed(0))
    return [model(x).logits.tolist(), card["shape"], card["classes"], card["mean"], card["std"]]


def verified(folder: Path) -> str:
    """What `rood verify` says of a receipt; a lie that it names is a refusal."""
    try:
        command(["verify", str(folder), "--tier", "schema"])
    except SystemExit as e:
        if e.code == REFUTED:
            raise RoodError("the receipt is refuted") from None
        if e.code:
            raise
    return "verified"


READERS = {"fit": guarded, "train": network, "receipt": verified}
