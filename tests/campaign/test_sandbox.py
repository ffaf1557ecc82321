"""Where there is no sandbox, the campaign refuses in one sentence and tries nothing."""

import os

import pytest

from campaign import __main__ as campaign
from campaign import sandbox


def test_without_namespaces_it_refuses(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv(sandbox.INSIDE, raising=False)
    (tmp_path / "unshare").write_text("#!/bin/sh\necho 'unshare: not permitted' >&2\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    for path, why in ((tmp_path, "unshare: not permitted"), (tmp_path / "none", "unshare")):
        monkeypatch.setenv("PATH", str(path))
        assert campaign.main(["inputs", "--rows", str(tmp_path / "rows")]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: expected a user namespace")
        assert why in line
    assert not (tmp_path / "rows").exists()


def test_a_process_that_can_write_outside_is_not_closed_in(capsys, monkeypatch, tmp_path):
    assert not sandbox.is_closed(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(sandbox.INSIDE, "1")
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    assert campaign.main(["inputs"]) == 1
    assert "files outside can be written" in capsys.readouterr().err


def test_inside_nothing_but_memory_can_be_written(tmp_path):
    if why := sandbox.reason_against():
        pytest.skip(f"no user namespace here: {why}")
    script = f"touch /tmp/in && touch {tmp_path}/x /etc/x {os.getcwd()}/x 2>&1; ls /tmp"
    done = sandbox.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.stdout.count("Read-only") + done.stdout.count("cannot touch") >= 2
    assert done.stdout.splitlines()[-1] == "in"
    assert not (tmp_path / "x").exists()
