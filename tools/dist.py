"""Build the sdist and the wheel of each distribution; two builds give the same bytes.

python -m tools.dist [NAME ...] [--out dist]      NAME: rood, rood-papers, rood-zoo; default: all
"""

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"rood": ROOT, "rood-papers": ROOT / "papers", "rood-zoo": ROOT / "zoo"}
# what an archive of rood takes along beside src/: its tests run in it
BESIDE = ("tests", "tools", "benchmarks", "examples", "docs", ".ci")
EPOCH = 946684800  # 2000-01-01: zip files begin in 1980
BACKEND = """
import sys
from setuptools import build_meta
_, out, *kinds = sys.argv  # the backend changes sys.argv
for kind in kinds:
    print(getattr(build_meta, "build_" + kind)(out))
"""


def build(name: str, out: Path, kinds: tuple[str, ...] = ("sdist", "wheel")) -> list[Path]:
    """Build a distribution from a clean copy of its folder; the files written to `out`."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        copy = _copy(name, Path(temporary) / name)
        command = [sys.executable, "-c", BACKEND, str(out.resolve()), *kinds]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} was not built:\n{done.stdout}{done.stderr}")
    stem = name.replace("-", "_") + "-"
    built = [out / line for line in done.stdout.splitlines() if line.startswith(stem)]
    for file in built:
        if file.name.endswith(".tar.gz"):
            _repack(file, epoch)
    return built


def _copy(name: str, to: Path) -> Path:
    """The folder without caches and other distributions, with the same modes everywhere."""
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache", "build", "dist")
    source = FOLDERS[name]
    kept = ("src", *BESIDE) if source == ROOT else [p.name for p in source.iterdir() if p.is_dir()]
    to.mkdir()
    for folder in kept:
        if (source / folder).is_dir():
            shutil.copytree(source / folder, to / folder, ignore=junk)
    for file in source.iterdir():
        if file.is_file() and not file.name.startswith(".coverage"):
            shutil.copyfile(file, to / file.name)
    for path in to.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.parent.name == ".ci" else 0o644)
    return to


def _repack(file: Path, epoch: int) -> None:
    """Write the archive again, sorted, without owners and with one date."""
    with tarfile.open(file) as old:
        members = sorted(old.getmembers(), key=lambda m: m.name)
        files = {m.name: old.extractfile(m) for m in members if m.isfile()}
        content = {name: file.read() for name, file in files.items() if file}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in members:
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.mode, entry.mtime = member.type, member.mode, epoch
            entry.size = len(content.get(member.name, b""))
            new.addfile(entry, io.BytesIO(content.get(member.name, b"")))
    file.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))


def main() -> None:
    """Build what the command line names and print a hash of each file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FOLDERS))
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    for name in given.names or FOLDERS:
        for file in build(name, given.out):
            print(f"{sha256(file.read_bytes()).hexdigest()}  {file.name}")


if __name__ == "__main__":
    main()
