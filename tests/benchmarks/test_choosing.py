"""The benchmark behind the choice of a detector, on a few digits."""

import json
from dataclasses import replace

from benchmarks import choosing
from rood.corruptions import names

CASE = replace(choosing.CLEAN["digits-ce"], fit=200, limit=60, corrupted=10, attacked=6)


def test_every_registered_detector_has_a_network_or_a_reason():
    measured = {d for case in choosing.CLEAN.values() for d in case.detectors}
    assert measured | set(choosing.WITHOUT) == set(choosing.registry.names())


def test_clean_rows_tell_what_was_measured():
    rows = {r["detector"]: r for r in choosing.clean("digits-ce", CASE, ["energy", "vim", "knn"])}
    assert list(rows) == ["energy", "vim", "knn"]
    energy, knn = rows["energy"], rows["knn"]
    assert energy["kilobytes"] == 0 < knn["kilobytes"]
    assert (energy["fits"], knn["fits"]) == (False, True)
    assert 0.8 < energy["near"]["digits:near"] <= 1
    assert set(knn["corrupted"]) == set(names())
    assert max(knn["corrupted"].values()) > 0.1 > knn["false_alarms"]


def test_the_cost_is_in_forward_passes():
    (row,) = choosing.cost("digits-ce", replace(CASE, limit=40), ["mirrored_msp"], runs=3)
    assert 1.3 < row["passes"] < 4


def test_attacked_rows_have_every_side():
    (row,) = choosing.attacked("digits-ce", replace(CASE, attack="quick"), ["energy"])
    assert row["both"] <= min(row["inside"], row["outside"]) <= row["none"]
    assert row["low"] <= row["both"] <= row["high"]
    assert row["n"] == 6


def test_rows_of_runs_side_by_side_are_joined_in_one_order(tmp_path):
    def write(name, *rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return path

    def row(part, network, detector, **more):
        return {"part": part, "network": network, "detector": detector, **more}

    attacked = row("attacked", "gtsrb-aloe", "msp")
    old, new = (row("clean", "cifar10-ce", "knn", n=n) for n in (1, 2))
    first = row("clean", "cifar10-ce", "energy")
    out = write("all.jsonl", attacked, old)
    choosing.join([write("b.jsonl", new), write("a.jsonl", first)], out)
    assert [json.loads(line) for line in out.read_text().splitlines()] == [first, new, attacked]
