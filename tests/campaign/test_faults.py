"""Planted faults: a link that is followed, a SystemExit that is swallowed."""

import pytest
from typer.core import TyperGroup

from campaign import faults
from rood import cli
from rood._files import Folder


def test_a_followed_link_is_noticed(small, monkeypatch):
    assert faults.linked(small, "fit", "detector.safetensors").kind == "clean error"
    naive = lambda folder, name, content: (folder.path / name).write_bytes(content)
    monkeypatch.setattr(Folder, "write", naive)
    verdict = faults.linked(small, "fit", "detector.safetensors")
    assert verdict.kind == "silently wrong"
    assert "wrote through the link" in verdict.said


@pytest.mark.parametrize("word", faults.ENDS)
def test_a_network_that_ends_the_process_does_not_pass_a_gate(small, word):
    assert faults.gate(small, word).kind == "clean error"


def test_a_swallowed_exit_is_noticed(small, monkeypatch):
    monkeypatch.setattr(cli._Commands, "invoke", TyperGroup.invoke)
    assert faults.gate(small, "exit").kind == "silently wrong"
