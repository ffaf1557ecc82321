"""Ways to spoil a file: its bytes, its text, the values in it, and what kind of file it is."""

import io
import json
import os
import random
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rood.models import checkpoint

Change = Callable[[bytes, random.Random], bytes]

DEEP = 100_000  # levels of nesting
ODD_JSON = [
    *("null", "true", "false", "-1", "0", "1", "0.5", "1e308", "1e999", "-1e999", "NaN", "1e-320"),
    *("9223372036854775808", "1" + "0" * 400, '""', '"x"', '"\\ud800"', '"\\u0000"', '"\\u202e"'),
    *('"../../../../etc/passwd"', '"/etc/passwd"', '"' + "x" * 5000 + '"', "[]", "{}", "[[]]"),
    *("[1,2,3]", '[null,"a"]', '{"a":{"b":null}}', "[0]", "[-1,-1,-1]", "[100000,100000,100000]"),
    *("[" + ",".join("1" * 5000) + "]", "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP),
]
ODD_TOML = [
    *("true", "-1", "0", "1e308", "inf", "nan", "9223372036854775807", '""', '"x"', '"\\u0000"'),
    *("[]", "[[]]", "{}", "[1, 2]", '["a", "a"]', "1979-05-27", "'/etc/passwd'", "[-1.0]", "2.5"),
    *('"' + "x" * 5000 + '"', "[" * 3000 + "]" * 3000, "{a = " * 3000 + "1" + "}" * 3000),
]
ODD_WORDS = [
    *("", " ", "-1", "0", "1e999", "nan", "inf", "x" * 5000, "\x00", "\x1b[31m", "../..", "/", "~"),
    *(
        "=1+1",
        "@SUM(1)",
        "a,b",
        '"',
        "'",
        "\ud800",
        "%s",
        "{}",
        "$HOME",
        "9" * 400,
        "-0",
        "1/0",
        ":",
    ),
    *("/dev/zero", "a" * 300, "١", "0x10", "1_000", "[bold]x[/]", "\n", "\r", "\u202e", "é"),
]


def spoil_bytes(raw: bytes, rng: random.Random) -> bytes:
    """One to four changes of single bytes or stretches of them."""
    found = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at, n = rng.randrange(len(found) + 1), rng.randint(1, 64)
        how = rng.randrange(9)
        if how == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif how == 1:
            del found[at : at + n]
        elif how == 2:
            found[at:at] = rng.randbytes(n)
        elif how == 3:
            found[at:at] = found[at : at + n]
        elif how == 4:
            found = found[:at]
        elif how == 5:
            found[at : at + n] = bytes(min(n, len(found) - at))
        elif how == 6:
            found[at : at + 4] = struct.pack("<i", rng.choice((-1, 0, 2**31 - 1, -(2**31))))
        elif how == 7:
            found[at : at + 8] = struct.pack("<Q", rng.choice((0, 2**40, 2**63, 2**64 - 1)))
        else:
            found += rng.randbytes(n)
    return bytes(found)


def spoil_text(raw: bytes, rng: random.Random) -> bytes:
    """Another number, word, sign or line somewhere in a text."""
    text = raw.decode("utf-8", "surrogateescape")
    pieces = re.split(r"([\w.+-]+|[^\w.+-])", text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(pieces))
        odd = rng.choice(ODD_WORDS)
        pieces[at] = rng.choice((odd, pieces[at] * 2, "", odd + pieces[at]))
    return "".join(pieces).encode("utf-8", "surrogatepass" if rng.random() < 0.5 else "replace")


def spoil_json(raw: bytes, rng: random.Random) -> bytes:
    """Another value, a missing key or a new one somewhere in a JSON text."""
    try:
        value = json.loads(raw)
    except ValueError:
        return spoil_bytes(raw, rng)
    spots = list(_spots(value))
    marks: dict[str, str] = {}
    for _ in range(rng.randint(1, 2)):
        if not spots:
            return rng.choice(ODD_JSON).encode()
        holder, key = rng.choice(spots)
        how = rng.random()
        if how < 0.15 and isinstance(holder, dict):
            holder.pop(key, None)
        elif how < 0.25 and isinstance(holder, dict) and key in holder:
            holder[str(key) + rng.choice(("x", " ", "\x00"))] = holder.pop(key)
        elif isinstance(holder, dict) or key < len(holder):
            marks[mark := f"@{len(marks)}@"] = rng.choice(ODD_JSON)
            holder[key] = mark
    text = json.dumps(value)
    for mark, odd in marks.items():
        text = text.replace(f'"{mark}"', odd)
    return text.encode()


def resealed(seal: str) -> Change:
    """Changes of a JSON text whose checksum fits again: what a stranger may send on purpose."""

    def change(raw: bytes, rng: random.Random) -> bytes:
        spoilt = spoil_json(raw, rng)
        try:
            return checkpoint.sealed(json.loads(spoilt), seal)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return spoilt

    return change


def _spots(value: Any) -> list[tuple[Any, Any]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found: list[tuple[Any, Any]] = []
    for key, item in inner:
        found += [(value, key), *_spots(item)]
    return found


def spoil_toml(raw: bytes, rng: random.Random) -> bytes:
    """Another value or key in a line of TOML."""
    lines = raw.decode().splitlines()
    at = rng.randrange(len(lines))
    key, sign, _value = lines[at].partition("=")
    how = rng.random()
    if sign and how < 0.7:
        lines[at] = f"{key}= {rng.choice(ODD_TOML)}"
    elif how < 0.8:
        lines[at] = ".".join(["a"] * rng.choice((1, 3, 3000))) + " = 1"
    elif how < 0.9:
        lines.insert(at, lines[at])
    else:
        lines[at] = "[" + ".".join(["a"] * rng.choice((1, 3, 3000))) + "]"
    return "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")


def spoil_lines(raw: bytes, rng: random.Random) -> bytes:
    """Another value in one line of JSON, or lines cut, doubled or exchanged."""
    lines = raw.splitlines(keepends=True)
    if not lines:
        return rng.randbytes(20)
    at, how = rng.randrange(len(lines)), rng.random()
    if how < 0.7:
        lines[at] = spoil_json(lines[at], rng).strip() + b"\n"
    elif how < 0.8:
        lines[at] = spoil_bytes(lines[at], rng)
    elif how < 0.9:
        lines.insert(at, rng.choice((b"\n", b"{}\n", b"null\n", b"[]\n", lines[at], b"\xff\xfe\n")))
    else:
        lines[at] = lines[at][: rng.randrange(len(lines[at]))]
    return b"".join(lines)


def spoil_safetensors(raw: bytes, rng: random.Random) -> bytes:
    """Another entry in the header of a safetensors file, whose length fits again."""
    (n,) = struct.unpack("<Q", raw[:8])
    head, rest = raw[8 : 8 + n], raw[8 + n :]
    how = rng.random()
    if how < 0.3:
        return spoil_bytes(raw, rng)
    if how < 0.6:
        old, new = rng.choice(
            ((b"F32", b"F64"), (b"F32", b"BF16"), (b"F32", b"I32"), (b"F32", b"F8_E4M3"))
        )
        head = head.replace(old, new, rng.choice((1, -1)))
    else:
        head = spoil_json(head, rng)
    return struct.pack("<Q", len(head)) + head + rest


def spoil_zip(raw: bytes, rng: random.Random) -> bytes:
    """Another member, or another header of an array, in an archive that is whole otherwise."""
    if rng.random() < 0.3:
        return spoil_bytes(raw, rng)
    if rng.random() < 0.2:  # flags and sizes of the directory: encrypted, wrong method, huge
        at = raw.rfind(b"PK\x01\x02") + rng.choice((8, 10, 20, 24, 42))
        return (
            raw[:at]
            + rng.choice((b"\x01\x00", b"\xff\xff", b"\x63\x00", b"\x00\x00"))
            + raw[at + 2 :]
        )
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        chosen = rng.choice(archive.namelist())
    how = rng.choice((spoil_bytes, _spoil_array))
    name = chosen if rng.random() < 0.9 else "../../x.npy"
    left_out = rng.random() < 0.1
    return rewritten(raw, lambda data: how(data, rng), chosen, None if left_out else name)


def rewritten(
    raw: bytes, change: Callable[[bytes], bytes], chosen: str | None = None, name: str | None = ""
) -> bytes:
    """A zip archive with one member changed, or all; under another name, or left out by None."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(raw)) as old,
        zipfile.ZipFile(made, "w") as new,
    ):
        for member in old.namelist():
            kind = old.getinfo(member).compress_type
            if chosen not in (None, member):
                new.writestr(member, old.read(member), kind)
            elif name is not None:
                new.writestr(name or member, change(old.read(member)), kind)
    return made.getvalue()


SHAPES = (
    "(1000000, 3, 8, 8)",
    "(-1, 3, 8, 8)",
    "(10**12,)",
    "(0,)",
    "()",
    "(2, 3)",
    "(12, 3, 0, 8)",
)
TYPES = ("|O", "<f8", "<f2", "<i8", "|S8", "<U8", "<c16", "|b1", "<M8[s]", ">f4", "|V3")


def _spoil_array(data: bytes, rng: random.Random) -> bytes:
    """Another shape or type in the header of an .npy file."""
    if not data.startswith(b"\x93NUMPY"):
        return spoil_bytes(data, rng)
    n = struct.unpack("<H", data[8:10])[0]
    head, rest = data[10 : 10 + n].decode(), data[10 + n :]
    if rng.random() < 0.5:
        head = re.sub(r"\(.*?\)", lambda m: rng.choice(SHAPES), head)
    else:
        head = re.sub(r"'descr': '.*?'", lambda m: f"'descr': '{rng.choice(TYPES)}'", head)
    head = head.rstrip().ljust(n - 1) + "\n"
    return data[:8] + struct.pack("<H", len(head)) + head.encode() + rest


def odd_kinds() -> dict[str, Callable[[Path], None]]:
    """What may be at a path instead of the file that is expected there."""
    return {
        "missing": lambda p: None,
        "empty": lambda p: p.touch(),
        "folder": lambda p: p.mkdir(),
        "pipe": lambda p: os.mkfifo(p),
        "endless": lambda p: p.symlink_to("/dev/zero"),
        "loop": lambda p: p.symlink_to(p.name),
        "dangling": lambda p: p.symlink_to("nowhere"),
        "huge": _sparse,
    }


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)  # takes no room
