"""Files that are whole or not there: two writers at once, failures, kills."""

import errno
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rood._files import write_whole

WRITER = """
import sys
from pathlib import Path
from rood._files import write_whole
name, size = sys.argv[1:]
for _ in range(40):
    write_whole(Path("file"), name.encode() * int(size))
"""


def test_processes_that_write_one_file_at_once_take_turns(tmp_path):
    path = tmp_path / "file"
    contents = {b"a" * 300_000, b"b" * 200_000}
    start = [sys.executable, "-c", WRITER]
    writers = [
        subprocess.Popen([*start, *arguments], cwd=tmp_path, stderr=subprocess.PIPE)
        for arguments in (("a", "300000"), ("b", "200000"))
    ]
    while any(w.poll() is None for w in writers):
        if path.exists():
            assert path.read_bytes() in contents
    for writer in writers:
        assert writer.communicate()[1] == b""
        assert writer.returncode == 0
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_write_one_file_at_once_take_turns(tmp_path):
    path = tmp_path / "file"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: write_whole(path, b"%d" % i * 10_000), range(64)))
    assert len(set(path.read_text())) <= 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "file"
    write_whole(path, b"old")
    for step in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(f"rood._files.os.{step}", full)
            with pytest.raises(OSError, match="No space left"):
                write_whole(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_cleared_by_the_next(tmp_path):
    (tmp_path / "file.part").write_bytes(b"half of something long")
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_files_are_written_where_nothing_can_be_locked(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("rood._files.fcntl.flock", none)
    write_whole(tmp_path / "file", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
