"""The table counts every case, and passes only if nothing bad is in it."""

import pytest

from campaign.table import BAD, MEMORY, Case, Table, Verdict, totals


def found(kind, row="a", memory=0):
    return Case("inputs", row, "1", lambda: Verdict(kind, "said", memory)).tried()


def test_cases_are_counted_by_row_and_group():
    table = Table()
    for kind, row in (("clean error", "a"), ("identical", "a"), ("identical", "b")):
        table.add(found(kind, row))
    assert [(r["row"], r["tried"], r["identical"]) for r in table.rows()] == [
        ("a", 2, 1),
        ("b", 1, 1),
    ]
    (total,) = totals(table.rows())
    assert (total["tried"], total["clean error"], total["hang"]) == (3, 1, 0)
    assert "inputs, all" in str(table)
    assert table.passed()


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_case_fails_the_campaign(kind):
    table = Table()
    table.add(found("identical"))
    table.add(found(kind))
    assert not table.passed()
    assert table.bad[0]["said"] == "said"


def test_a_refusal_that_takes_too_much_memory_fails_the_campaign():
    table = Table()
    table.add(found("clean error", memory=MEMORY + 1))
    assert not table.passed()


def test_nothing_tried_is_no_success():
    assert not Table().passed()
