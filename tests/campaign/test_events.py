"""The moments at which a run is killed: every change of a file."""

from pathlib import Path

from campaign.events import at_each_event, tear
from campaign.forked import forked
from rood._files import Folder


def test_each_write_rename_and_fsync_is_a_moment(tmp_path):
    def work():
        seen = []
        at_each_event(seen.append)
        Path(tmp_path / "a").write_text("x")
        none = len(seen)
        Folder(tmp_path).write("b", b"y")
        Path(tmp_path / "a").read_text()
        return [none, len(seen)]

    written, all_ = forked(work).value
    assert written == 1
    assert all_ >= written + 5  # .part, fsync twice, rename twice


def test_an_open_file_is_cut_in_half(tmp_path):
    def work():
        with Path(tmp_path / "a").open("wb", buffering=0) as file:
            file.write(b"x" * 100)
            tear(str(tmp_path))

    assert forked(work).how == "value"
    assert (tmp_path / "a").stat().st_size == 50
