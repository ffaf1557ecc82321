"""The fixed corpus of regressions: inputs that once ended in a traceback or in wrong numbers."""

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.mutations import DEEP, odd_kinds
from rood.models import checkpoint

HUGE = str(10**400)
LISTS, TABLES = "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP
RESEALED = {"card of a stranger": checkpoint.SEAL, "guard of a stranger": "sha256"}


@dataclass(frozen=True)
class Entry:
    """One changed file."""

    surface: str  # the name of a `surfaces.Surface`
    what: str
    change: Callable[[Path], None]


def corpus() -> list[Entry]:
    """Every entry; those of one surface stand together."""
    return [*_cards(), *_guards(), *_settings(), *_results(), *_tensors(), *_images(), *_kinds()]


def _cards() -> list[Entry]:
    odd = {
        "mean": ("[0.1, 0.1, 0.1]", "null", "[]", '["a"]', "[1e999, 0, 0]", "[-1, 0, 0]", HUGE),
        "std": ("[0.5, 0.5, 0.5]", "[0, 0, 0]", "[1e308, 1, 1]", '"x"', "[[1]]"),
        "classes": ('["a", "b", "c"]', '[["a"], "b", "c"]', "null", '["\\ud800", "b", "c"]', "3"),
        "shape": ("[3, 8]", "[0, 8, 8]", "[-1, 8, 8]", "[3, 100000, 100000]", '["3", 8, 8]', "{}"),
        "backbone": ('"nothing"', "null", '"../small_cnn"', '"\\u0000"', "[]"),
        "settings": ("[]", "null", '{"depth": -1}', '{"classes": 9999999999, "channels": 3}'),
        "format": ("null", "0", "-1", "99", '"1"', "1e999"),
        "sha256": ("null", "0", '""'),
    }
    found = [
        Entry(name, f"{key}: {text:.30}", entry(key, text, seal))
        for name, seal in (("checkpoint card", ""), ("card of a stranger", checkpoint.SEAL))
        for key, texts in odd.items()
        for text in texts
    ]
    sizes = ("width", "features", "channels", "classes")
    found += [
        Entry("card of a stranger", f"{size} {n}", entry(f"settings.{size}", n, checkpoint.SEAL))
        for size in sizes
        for n in ("-1", "0", "100000", "2147483648", "null", '"x"', "0.5")
    ]
    return [*found, *(Entry("checkpoint card", t[:9], text(t)) for t in (LISTS, TABLES, "\x80"))]


def _guards() -> list[Entry]:
    odd = {
        "detector": ("null", '{"class": "KNN"}', '{"class": "nn.Module"}', '{"class": []}'),
        "networks": ("null", "[]", "[null]", "{}", '[{"file": "../../net.safetensors"}]'),
        "calibration": ("null", "{}", '{"threshold": "x"}'),
        "shape": ("null", "[]", "[3]", '["a", 8, 8]', "[1e999, 8, 8]", "[0, 0, 0]", "[-1, 8, 8]"),
        "classes": ("null", "7", "[[0]]", "[1e308]"),
        "files": ("null", "[]", '{"../x": "0"}', '{"detector.safetensors": null}'),
        "about": ("null", "[]"),
    }
    seal = RESEALED["guard of a stranger"]
    return [
        Entry("guard of a stranger", f"{key}: {value}", entry(key, value, seal))
        for key, values in odd.items()
        for value in values
    ]


def _settings() -> list[Entry]:
    deep = "[" * 3000 + "]" * 3000
    lines = {
        "audit.toml": (
            f"limit = {deep}",
            "x = " + "{a = " * 3000 + "1" + "}" * 3000,
            ".".join("a" * 3000) + " = 1",
            "limit = -1",
            "seed = 9223372036854775807",
            "mean = [inf, nan, 0.0]",
            "batch_size = 0",
            'device = "\\u0000"',
            'inside = "npz:/dev/zero"',
            'attack = ""',
            "limit = true",
        ),
        "train.toml": (
            f"size = {deep}",
            "size = -1",
            "size = 9223372036854775807",
            "mean = [nan]",
            'backbone = "\\u0000"',
            "architecture = {width = -1}",
        ),
    }
    return [
        Entry(name, line[:30], first_line(line)) for name, some in lines.items() for line in some
    ]


def _results() -> list[Entry]:
    rows = {
        "model": ("[]", "{}", "null", '"\\ud800"', '"' + "x" * 5000 + '"'),
        "detector": ("[[]]", "3"),
        "value": ("null", '"x"', "1e999", HUGE, "true", "[]"),
        "low": ('"x"', "[]"),
        "n_in": ("-1", "0.5", "9223372036854775808", HUGE, "1e999"),
        "side": ('"x"', "[]"),
        "verdict": ("null", "{}", '"x"'),
        "scenario": ('""', '"pgd linf:x"', '"pgd linf:' + "9" * 400 + '"', "7"),
        "seed": ("null", '"a"'),
    }
    manifest = {
        "settings": ("null", "[]", '{"data": []}'),
        "versions": ("null", "[]", "7", '{"rood": null}'),
        "data": ("null", '{"inside": []}', '{"inside": {"notes": {}}}'),
        "models": ("[]", '{"net": null}', '{"net": {"dimensions": {"codes": [7]}}}'),
        "detectors": ("[null]", '{"knn": 7}'),
        "notes": ("7", "[[7]]", '["\\ud800"]'),
        "cost": ('"x"', '{"seconds": "x"}', '{"seconds": 1e999}'),
        "hardware": ("null", '{"peak_memory_mb": []}'),
        "split": ("7", '{"rule": [[]]}'),
        "finished": ("null", '"x"'),
        "rows_sha256": ("7", '"0"'),
    }
    found = [
        Entry("results rows", f"{key}: {value:.30}", first_row(key, value))
        for key, values in rows.items()
        for value in values
    ]
    found += [
        Entry("results manifest", f"{key}: {value:.30}", entry(key, value))
        for key, values in manifest.items()
        for value in values
    ]
    found += [Entry("results rows", t[:9], text(t + "\n")) for t in (LISTS, "null", "[]", "\xff")]
    return found + [Entry("results manifest", t[:9], text(t)) for t in (LISTS, TABLES, "7")]


def _tensors() -> list[Entry]:
    names = ("checkpoint weights", "weights of others", "results scores")
    kinds = (b"F64", b"BF16", b"I32", b"F8_E4M3", b"XXXX")
    found = [
        Entry(name, f"as {kind.decode()}", replaced(b'"F32"', b'"' + kind + b'"'))
        for name in names
        for kind in kinds
    ]
    found += [
        Entry(name, f"a side of {n}", replaced(rb'"shape":\[\d+', b'"shape":[%d' % n))
        for name in names
        for n in (2**40, 2**63, 2**64 - 1)
    ]
    return found + [
        Entry(name, f"header of {n} bytes", header(n)) for name in names for n in (0, 2**40, 2**63)
    ]


def _images() -> list[Entry]:
    return [
        *(Entry("npz images", f"shape {s}", npz(shape=s)) for s in ("(10**9, 3, 8, 8)", "(-1,)")),
        *(Entry("npz images", f"type {t}", npz(kind=t)) for t in ("|O", "<M8[s]", "|V3", "<c16")),
        Entry("npz images", "a bomb", bomb),
        Entry("npz images", "encrypted", encrypted),
        Entry("image list", "a path of 5000 characters", text("x" * 5000 + " 0\n")),
        Entry("image list", "a label of 400 digits", text(f"a/0.png {HUGE}\n")),
        Entry("image list", "NUL", text("a\x00b 0\n")),
        *(Entry("cache card", f"labels {v}", entry("labels", v)) for v in ("7", '["x"]', "[null]")),
        *(Entry("cache card", f"classes {v}", entry("classes", v)) for v in ("null", "[1e308]")),
        Entry("cache card", "labels of 400 digits", entry("labels", f"[{HUGE}]")),
        *(Entry("cache card", f"without {k}", without(k)) for k in ("notes", "sha256", "name")),
    ]


def _kinds() -> list[Entry]:
    """A pipe, a folder, an endless device, 20 GB: in place of a file of every format."""
    names = (
        *("checkpoint card", "checkpoint weights", "weights .pth", "audit.toml", "npz images"),
        *("image list", "image png", "guard card", "results rows", "results manifest"),
        *("results scores", "cache card", "cache pixels"),
    )

    def stood(path: Path, kind: str) -> None:
        path.unlink()
        odd_kinds()[kind](path)

    return [
        Entry(name, kind, lambda path, kind=kind: stood(path, kind))  # type: ignore[misc]
        for name in names
        for kind in odd_kinds()
    ]


# --- changes of a file


def text(content: str) -> Callable[[Path], None]:
    """Another content."""
    return lambda path: path.write_bytes(content.encode("latin-1")) and None


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Other bytes of a header where `old`, a pattern, matches; the length in front fits again."""

    def change(path: Path) -> None:
        raw = path.read_bytes()
        (n,) = struct.unpack("<Q", raw[:8])
        head = re.sub(old, new, raw[8 : 8 + n], count=1)
        path.write_bytes(struct.pack("<Q", len(head)) + head + raw[8 + n :])

    return change


def header(n: int) -> Callable[[Path], None]:
    """Another length of the header of a safetensors file."""
    return lambda path: path.write_bytes(struct.pack("<Q", n) + path.read_bytes()[8:]) and None


def entry(place: str, value: str, seal: str = "") -> Callable[[Path], None]:
    """Another value, as JSON text, at a dotted place; with a seal that fits, where one is named."""

    def change(path: Path) -> None:
        card = json.loads(path.read_bytes())
        path.write_text(_changed(card, place, value))
        if seal:
            try:
                path.write_bytes(checkpoint.sealed(json.loads(path.read_bytes()), seal))
            except (ValueError, TypeError):  # numbers that Python itself refuses
                return

    return change


def first_row(key: str, value: str) -> Callable[[Path], None]:
    """Another value in the first line of rows."""

    def change(path: Path) -> None:
        first, *rest = path.read_text().splitlines(keepends=True)
        path.write_text("".join([_changed(json.loads(first), key, value) + "\n", *rest]))

    return change


def without(key: str) -> Callable[[Path], None]:
    """A card that lacks an entry."""

    def change(path: Path) -> None:
        card = json.loads(path.read_bytes())
        card.pop(key)
        path.write_text(json.dumps(card))

    return change


def first_line(line: str) -> Callable[[Path], None]:
    """A line of TOML in place of the one with the same key, or before all others."""

    def change(path: Path) -> None:
        key = line.partition(" ")[0]
        kept = [x for x in path.read_text().splitlines() if not x.startswith(f"{key} =")]
        path.write_text("\n".join([line, *kept, ""]))

    return change


def _changed(card: dict[str, Any], place: str, value: str) -> str:
    *tables, key = place.split(".")
    inner = card
    for name in tables:
        inner = inner[name]
    inner[key] = "@@"
    return json.dumps(card).replace('"@@"', value)


def npz(shape: str = "", kind: str = "") -> Callable[[Path], None]:
    """Another shape or type in the header of every array of an archive."""
    from campaign.mutations import rewritten

    def other(data: bytes) -> bytes:
        n = struct.unpack("<H", data[8:10])[0]
        head = data[10 : 10 + n].decode()
        head = re.sub(r"\(.*?\)", lambda m: shape or m.group(), head)
        head = re.sub(r"'descr': '.*?'", lambda m: f"'descr': '{kind}'" if kind else m[0], head)
        head = head.rstrip().ljust(n - 1) + "\n"
        return data[:8] + struct.pack("<H", len(head)) + head.encode() + data[10 + n :]

    return lambda path: path.write_bytes(rewritten(path.read_bytes(), other)) and None


def bomb(path: Path) -> None:
    """An array of 2 GB of zeros, in two megabytes."""
    import io
    import zipfile

    head = io.BytesIO()
    from numpy.lib import format as npy

    shape = (2**31 // 192, 3, 8, 8)
    npy.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w", force_zip64=True) as member,
    ):
        member.write(head.getvalue())
        for _ in range(shape[0] * 192 // 2**22):
            member.write(bytes(2**22))
        member.write(bytes(shape[0] * 192 % 2**22))


def encrypted(path: Path) -> None:
    """The flag of an encrypted member, in both headers."""
    raw = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.find(mark) + at] |= 1
    path.write_bytes(bytes(raw))
