"""docs/evidence/attack-strength.md: the gallery of masks."""

import json

from tools import attack_strength


def row(attack, metric="auroc", value=0.25, verdict="pass"):
    where = {"detector": "flip", "scenario": f"{attack} linf:0.1"}
    return where | {"metric": metric, "value": value, "verdict": verdict}


def test_the_gallery_shows_truth_attacks_and_flags_that_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(attack_strength, "RESULTS", tmp_path)
    assert list(attack_strength.gallery()) == []
    rows = [
        row("truth", value=0.0, verdict="-"),
        row("quick", value=0.9),
        row("standard", value=0.8, verdict="fail"),
        row("standard", "flag_untrue_gradient", verdict="fail"),
        row("standard", "flag_too_good", verdict="warn"),
    ]
    (tmp_path / "attack-masks.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    _, through, table = attack_strength.gallery()
    assert through.endswith(": `flip` under `quick`.")
    name, what, *cells = table.splitlines()[-1].strip("| ").split(" | ")
    assert name == "`flip`"
    assert "negates the gradient" in what
    assert cells == ["0.000", "no gradient", "0.900 pass", "0.800 fail", "`untrue_gradient`"]


def test_false_alarms_on_honest_networks_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(attack_strength, "RESULTS", tmp_path)
    assert list(attack_strength.honest()) == []
    where = {"model": "a", "scenario": "linf:0.1", "attack": "quick", "n_in": 32}
    rows = [
        where | {"side": side, "metric": "auroc", "verdict": verdict}
        for side, verdict in [
            ("both", "pass"),
            ("both", "fail"),
            ("inside", "pass"),
            ("outside", "warn"),
        ]
    ]
    rows.append(where | {"side": "both", "metric": "flag_tied_scores", "verdict": "fail"})
    (tmp_path / "honest.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    _, table = attack_strength.honest()
    one, total = table.splitlines()[2:]
    shares = ["50% (1 of 2)", "25% (0 of 2)", "25% (1 of 2)", "`tied_scores`"]
    assert one.strip("| ").split(" | ") == ["`a`", "linf:0.1", "`quick`", "32", *shares]
    assert total.strip("| ").endswith(" | ".join(shares))
