"""The corpus is refused or read as it should be, and planted faults are noticed."""

import json
import os
from dataclasses import replace

import pytest

from campaign import surfaces
from campaign.corpus import corpus, entry
from campaign.forked import Ending
from campaign.surfaces import tried
from campaign.table import BAD, MEMORY, Case, Table
from rood import _parsing
from rood.models import checkpoint

SURFACES = {s.name: s for s in surfaces.surfaces()}
ENTRIES = corpus()


@pytest.mark.parametrize("name", dict.fromkeys(e.surface for e in ENTRIES))
def test_what_once_failed_is_refused_in_a_sentence_or_read(small, name):
    table = Table()
    for e in (e for e in ENTRIES if e.surface == name):
        judge = lambda e=e: tried(small, SURFACES[name], e.change)
        table.add(Case("corpus", name, e.what, judge).tried())
    assert table.passed(), table.bad


def test_a_missing_checksum_is_noticed(small, monkeypatch):
    change = entry("mean", "[0.3, 0.3, 0.3]")
    assert tried(small, SURFACES["checkpoint card"], change).kind == "clean error"
    monkeypatch.setattr(checkpoint, "check_seal", lambda *_: None)
    assert tried(small, SURFACES["checkpoint card"], change).kind == "silently wrong"


def test_an_unchecked_size_is_noticed(small, monkeypatch):
    def huge(path):
        with path.open("wb") as file:
            file.truncate(MEMORY + 2**25)

    def memory():
        table = Table()
        judge = lambda: tried(small, SURFACES["guard card"], huge)
        table.add(Case("planted", "size", "huge", judge).tried())
        return table

    assert memory().passed()
    monkeypatch.setattr(_parsing, "content", lambda path, most=0: path.read_bytes())
    table = memory()
    assert table.memory > MEMORY
    assert not table.passed()


def test_a_pipe_that_is_waited_for_is_noticed(small, monkeypatch):
    def pipe(path):
        path.unlink()
        os.mkfifo(path)

    assert tried(small, SURFACES["guard card"], pipe).kind == "clean error"
    monkeypatch.setattr(_parsing, "content", lambda path, most=0: path.read_bytes())
    monkeypatch.setattr("campaign.forked.LIMIT", 0.5)
    assert tried(small, SURFACES["guard card"], pipe).kind == "hang"


def test_the_same_seed_gives_the_same_inputs(small):
    def changed(seed):
        read = lambda path: path.read_bytes().hex()
        surface = replace(SURFACES["guard card"], name="planted", read=read)
        return surfaces.mutated(small, surface, seed).said

    assert changed(1) == changed(1) != changed(2)


def test_there_are_ten_thousand_inputs(small):
    cases = list(surfaces.cases(small))
    assert len(cases) >= 10_000
    assert {c.row for c in cases} == {*SURFACES, "options"}


def test_a_reader_that_breaks_is_noticed(small, monkeypatch):
    def breaks(path):
        raise KeyError(json.dumps(str(path)))

    broken = replace(SURFACES["guard card"], read=breaks)
    monkeypatch.setitem(surfaces._known, broken.name, Ending("value"))
    verdict = tried(small, broken, lambda path: None)
    assert verdict.kind in BAD
    assert "KeyError" in verdict.said
