"""The outcome of an audit as a SARIF 2.1.0 file, which code scanning shows as alerts."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rood.evaluation.gate import Missing, failure, is_attacked, place
from rood.evaluation.rows import Row
from rood.report.outcomes import explain, flag_name
from rood.report.verdicts import documentation, flags_page
from rood.report.words import percent, shown
from rood.version import __version__

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVELS = {"warn": "warning", "fail": "error"}
# rules that are no check of an attack: title, meaning, advice
GATE = {
    "below_limit": (
        "AUROC below the limit",
        "An AUROC with both sides attacked is below the limit of the gate.",
        "Take another detector, harden the network, or lower the limit.",
    ),
    "not_attacked": (
        "Not attacked",
        "A detector has no number with both sides attacked.",
        "Give budgets (--eps); where a time limit left it out, more time (--time).",
    ),
}


def sarif(
    rows: Sequence[Row],
    bar: float | None = None,
    missing: Sequence[Missing] = (),
    uri: str = "rows.jsonl",
) -> bytes:
    """A result for every AUROC below the bar, every flag that warns or fails, and what is missing.

    The rule of a flag is its check. Results point to the lines of rows.jsonl, which is at `uri`.
    """
    found = [*_below(rows, bar, uri), *_flags(rows, uri), *(_missing(m, uri) for m in missing)]
    rules = list(dict.fromkeys(result["ruleId"] for result in found))
    for result in found:
        result["ruleIndex"] = rules.index(result["ruleId"])
    driver = {"name": "rood", "version": __version__, "rules": [_rule(name) for name in rules]}
    if documentation():
        driver["informationUri"] = documentation()
    log = {"$schema": SCHEMA, "version": "2.1.0"}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": found}
    return (json.dumps(log | {"runs": [run]}, indent=1) + "\n").encode()


def _below(rows: Sequence[Row], bar: float | None, uri: str) -> Iterator[dict[str, Any]]:
    for line, row in enumerate(rows, start=1):
        # what is not believed has flags that say why
        if is_attacked(row) and row.verdict != "fail" and (said := failure(row, bar)):
            yield _result("below_limit", "error", f"{place(row)}: {said}", _where(row), uri, line)


def _flags(rows: Sequence[Row], uri: str) -> Iterator[dict[str, Any]]:
    """Each once: with both sides attacked a flag is that of the worse side."""
    flags = [(n, r) for n, r in enumerate(rows, start=1) if r.metric.startswith("flag_")]
    flags.sort(key=lambda pair: pair[1].side == "both")  # of two, the later one stays
    for line, row in {(*_where(r), r.metric): (n, r) for n, r in flags}.values():
        if row.verdict in LEVELS:
            wording = explain(row.metric)
            evidence = percent(row.value) if wording.share else f"{row.value:.3g}"
            said = f"{place(row)}: {wording.because} ({evidence}). {wording.advice}"
            rule, level = flag_name(row.metric), LEVELS[row.verdict]
            yield _result(rule, level, said, _where(row), uri, line)


def _missing(missing: Missing, uri: str) -> dict[str, Any]:
    return _result("not_attacked", "error", f"{missing}: not attacked", tuple(missing), uri, 1)


def _where(row: Row) -> tuple[str, ...]:
    return row.model, row.detector, row.dataset, row.scenario


def _result(
    rule: str, level: str, said: str, where: tuple[str, ...], uri: str, line: int
) -> dict[str, Any]:
    # the same finding of a later audit is the same alert
    digest = hashlib.sha256(json.dumps([rule, *where]).encode()).hexdigest()
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    name = {"fullyQualifiedName": shown("/".join(where), 400)}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": shown(said, 1000)},
        "locations": [{"physicalLocation": place, "logicalLocations": [name]}],
        "partialFingerprints": {"primaryLocationLineHash": f"{digest[:16]}:1"},
    }


def _rule(name: str) -> dict[str, Any]:
    if name in GATE:
        title, meaning, advice = GATE[name]
    else:
        wording = explain(name)
        title, meaning, advice = wording.title, wording.meaning, wording.advice
    rule: dict[str, Any] = {
        "id": name,
        "shortDescription": {"text": title},
        "fullDescription": {"text": meaning},
        "help": {"text": advice},
    }
    if name not in GATE and flags_page(name):
        rule["helpUri"] = flags_page(name)
    return rule
