"""SARIF files as the standard wants them: one result per failed number or flag, stable alerts."""

import json
from dataclasses import replace

from one_row import ROW

from rood.evaluation.checks import checks
from rood.evaluation.gate import Missing
from rood.report.sarif import sarif

FLAG = replace(ROW, metric="flag_zero_gradient", value=0.4, verdict="fail", low=None, high=None)


def read(*rows, bar=None, missing=()):
    """The rules and results, after a look at all that SARIF 2.1.0 requires of them."""
    log = json.loads(sarif(rows, bar, missing, "audit/rows.jsonl"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "rood"
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        texts = [rule["shortDescription"], rule["fullDescription"], rule["help"]]
        assert all(text["text"] for text in texts)
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "audit/rows.jsonl"}
        assert place["region"]["startLine"] >= 1
    return rules, run["results"]


def test_an_audit_that_passes_has_no_results():
    assert read(ROW, replace(FLAG, verdict="pass"), bar=0.7) == ([], [])


def test_a_number_below_the_bar_is_an_error_with_its_value_and_the_limit():
    _, (result,) = read(replace(ROW, side="none"), ROW, bar=0.8)
    assert (result["ruleId"], result["level"]) == ("below_limit", "error")
    assert result["message"]["text"] == (
        "net msp on svhn, pgd linf:0.1: AUROC 0.710 (95 % interval 0.650 to 0.770), "
        "both sides attacked: below 0.8"
    )
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 2}


def test_a_flag_is_a_result_whose_rule_is_its_check():
    failed = replace(ROW, verdict="fail")
    (rule,), (result,) = read(failed, FLAG, bar=0.8)
    (check,) = [c for c in checks() if c.name == "zero_gradient"]
    assert (rule["id"], result["level"]) == ("zero_gradient", "error")
    assert rule["help"]["text"] == check.wording.advice
    assert check.wording.because in result["message"]["text"]
    assert check.wording.advice in result["message"]["text"]
    assert read(replace(FLAG, verdict="warn"))[1][0]["level"] == "warning"


def test_a_flag_of_both_sides_stands_for_that_of_one():
    one = replace(FLAG, side="outside", verdict="warn")
    for rows in ([one, FLAG], [FLAG, one]):
        (result,) = read(*rows)[1]
        assert result["level"] == "error"
    assert len(read(one)[1]) == 1


def test_what_was_not_attacked_is_an_error():
    _, (result,) = read(ROW, missing=[Missing("net", "vim")])
    assert (result["ruleId"], result["message"]["text"]) == (
        "not_attacked",
        "net vim: not attacked",
    )


def test_the_same_finding_of_another_day_is_the_same_alert():
    alert = lambda *rows: read(*rows)[1][0]["partialFingerprints"]
    assert alert(FLAG) == alert(ROW, replace(FLAG, value=0.6))
    assert alert(FLAG) != alert(replace(FLAG, dataset="dtd"))


def test_names_cannot_break_the_file():
    _, (result,) = read(replace(FLAG, dataset="a\n\x00\u202e\ud800"))
    assert result["message"]["text"].isprintable()
