"""Files that are whole or not there, and inside their folder: writers at once, kills, links."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rood._files import Folder, for_spreadsheets, from_spreadsheets, write_whole
from rood.errors import RoodWarning

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
    def full(*_, **__):
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


@pytest.fixture
def trap(tmp_path):
    """A folder of a stranger, and a file and a folder elsewhere that its links lead to."""
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_bytes(b"precious")
    (tmp_path / "mine").mkdir()
    yield Folder(tmp_path / "mine")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert [p.read_bytes() for p in (tmp_path / "far").iterdir()] == [b"precious"]


WAYS = {
    "write": lambda f, name: f.write(name, b"new"),
    "append": lambda f, name: f.append(name, b"new"),
    "read": lambda f, name: f.read(name),
    "lock": lambda f, name: f.locked(name).__enter__(),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_file_is_reached_through_a_link(trap, way):
    (trap.path / "file").symlink_to(trap.path.parent / "victim")
    (trap.path / "dangling").symlink_to(trap.path.parent / "far" / "made")
    (trap.path / "folder").symlink_to(trap.path.parent / "far")
    for name in ("file", "dangling", *(["folder/file"] if way != "lock" else [])):
        with pytest.raises(OSError, match="a link stands there"):
            WAYS[way](trap, name)
        assert not trap.has(name)


def test_the_temporary_file_may_not_be_a_link_either(trap):
    (trap.path / "file.part").symlink_to(trap.path.parent / "victim")
    with pytest.raises(OSError, match="a link stands there"):
        trap.write("file", b"new")


def test_a_file_with_a_second_name_is_not_added_to_but_may_be_replaced(trap):
    (trap.path / "file").hardlink_to(trap.path.parent / "victim")
    with pytest.raises(OSError, match="a link stands there"):
        trap.append("file", b"new")
    trap.write("file", b"new")
    assert trap.read("file") == b"new"


def test_removing_removes_links_and_not_what_they_lead_to(trap):
    (trap.path / "file").symlink_to(trap.path.parent / "victim")
    (trap.path / "below").mkdir()
    (trap.path / "below" / "folder").symlink_to(trap.path.parent / "far")
    (trap.path / "folder").symlink_to(trap.path.parent / "far")
    assert trap.files("below", "") == []
    trap.remove("file")
    trap.remove("not there")
    trap.remove_tree("below")
    trap.remove_tree("not there")
    with pytest.raises(OSError, match="a link stands there"):
        trap.remove_tree("folder")
    assert [p.name for p in trap.path.iterdir()] == ["folder"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["../victim", "a/../../victim", "", "."])
def test_names_stay_inside_the_folder(trap, way, name):
    with pytest.raises(OSError, match="inside the folder"):
        WAYS[way](trap, name)
    with pytest.raises(OSError, match="inside the folder"):
        WAYS[way](trap, str(trap.path.parent / "victim"))


@pytest.mark.parametrize("way", WAYS)
def test_a_pipe_is_refused_at_once(trap, way):
    os.mkfifo(trap.path / "pipe")
    os.mkfifo(trap.path / "pipe.part")
    with pytest.raises(OSError, match="no regular file"):
        WAYS[way](trap, "pipe")


def test_a_lock_is_held_against_others_and_does_not_empty_the_file(tmp_path):
    (tmp_path / ".lock").write_bytes(b"kept")
    with Folder(tmp_path).locked(), pytest.raises(BlockingIOError):
        Folder(tmp_path).locked().__enter__()
    with Folder(tmp_path).locked():
        assert (tmp_path / ".lock").read_bytes() == b"kept"


def test_a_file_system_without_locks_costs_a_warning(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("rood._files.fcntl.flock", none)
    with pytest.warns(RoodWarning, match="has no locks"), Folder(tmp_path).locked():
        pass


@pytest.mark.parametrize(
    "text", ["=1+1", "+a", "-x", "@SUM(A1)", "'=1", "\t=1", "a", "'a", "", "-1.5", "-inf"]
)
def test_formulas_are_text_in_a_spreadsheet_and_come_back(text):
    cell = for_spreadsheets(text)
    runs = text.startswith(("=", "+", "-", "@", "\t")) and text not in ("-1.5", "-inf")
    assert str(cell).startswith("'") == (runs or text.startswith("'"))
    assert from_spreadsheets(str(cell)) == text


def test_numbers_stay_numbers_in_a_spreadsheet():
    assert [for_spreadsheets(v) for v in (-1.5, -2, None)] == [-1.5, -2, None]
