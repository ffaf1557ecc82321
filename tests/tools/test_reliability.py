"""docs/evidence/reliability.md from the rows of a campaign."""

import json

from campaign.table import BAD, COLUMNS

from tools import reliability


def row(group, name, tried, **more):
    counts = dict.fromkeys(COLUMNS, 0) | {"identical": tried - sum(more.values())} | more
    return {"group": group, "row": name, "tried": tried, "cpu_seconds": 60.0} | counts


def facts(group):
    return {"group": group, "row": "", "memory": 50 << 20, "minutes": 2.0, "workers": 2, "share": 1}


def test_the_page_sums_every_group_and_says_what_is_missing(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert "Not run yet" in reliability.page(path)
    rows = [row("inputs", "image list", 10_000), row("kills", "audit", 150, hang=2), facts("kills")]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    page = reliability.page(path)
    assert "10,150 cases: 10,148 as they should be, 2 not." in page
    assert "Only 150 of 200 kills, 0 of 400 flips, 0 of 80 faults were tried." in page
    assert "| kills | 150 | 0 | 148 | 0 | 0 | 0 | 2 |" in page
    assert "50 MB above the idle process" in page
    assert "2 of processor time" in page


def test_the_columns_are_those_of_the_campaign():
    assert reliability.GOOD + reliability.BAD == COLUMNS
    assert reliability.BAD == BAD


def test_every_group_is_explained():
    from campaign.__main__ import GROUPS

    assert tuple(reliability.GROUPS) == GROUPS
