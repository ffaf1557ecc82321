"""The findings on the first screen: at most four, the most important first."""

from report_folder import case, flag, row

from rood.evaluation.rows import Row
from rood.report import findings
from rood.report.numbers import Numbers


def top(rows: list[Row]) -> list[str]:
    return [f"{s.kind}: {s.lead} {s.rest}" for s in findings.top(Numbers(rows))]


def passes(detector: str, clean: float, attacked: float, model: str = "net") -> list[Row]:
    """The shares of OOD images that the deployed threshold accepts."""
    attack = {"scenario": "pgd linf:0.1", "side": "both", "verdict": "pass"}
    about = {"detector": detector, "model": model, "metric": "fpr95_in_fixed"}
    return [row(**about, value=clean), row(**about, value=attacked, **attack)]


def test_all_falls_are_one_finding_with_the_largest_first():
    rows = case("msp", 0.97, 0.0) + case("knn", 0.95, 0.31) + case("vim", 0.9, 0.9)
    assert top(rows)[0] == (
        "fell: Do not trust 2 of 3 detectors: at L∞ 0.1 the AUROC falls to a coin toss or worse, "
        "as of msp (0.97\u00a0→\u00a00.00) and knn (0.95\u00a0→\u00a00.31)."
    )


def test_the_best_detector_comes_with_what_its_threshold_lets_through():
    rows = case("msp", 0.97, 0.9) + passes("msp", 0.12, 0.4) + case("knn", 0.95, 0.85)
    (best,) = top(rows)
    assert best == (
        "holds: Best in the worst case: msp keeps an AUROC of 0.90 (0.97 without an attack). Its "
        "threshold lets 12.0\u00a0% of clean OOD images through, and 40.0\u00a0% under attack."
    )


def test_a_threshold_that_fails_without_an_attack_is_a_finding():
    rows = case("msp", 0.97, 0.9) + passes("msp", 0.1, 0.4)
    rows += case("knn", 0.95, 0.85) + passes("knn", 0.52, 0.6)
    assert top(rows)[1] == (
        "threshold: Without any attack, thresholds let OOD images through: knn lets "
        "52.0\u00a0% through."
    )
    assert len(top(case("msp", 0.97, 0.9) + passes("msp", 0.19, 0.4))) == 1


def test_numbers_that_are_not_believed_are_one_finding_with_reasons():
    rows = case("msp", 0.97, 0.95, verdict="fail") + case("knn", 0.95, 0.85)
    rows.append(flag("zero_gradient", "fail"))
    assert top(rows)[0] == (
        "unbelieved: Do not believe this attacked AUROC: 0.95 of msp: the attack failed its own "
        "checks (the gradient is zero for many images)."
    )
    assert top(rows)[1].startswith("holds: Best in the worst case: knn")


def test_the_worst_norm_decides_which_detector_is_best():
    rows = case("msp", 0.97, 0.95) + case("msp", 0.97, 0.6, scenario="pgd l2:0.5")
    rows += case("knn", 0.97, 0.8) + case("knn", 0.97, 0.82, scenario="pgd l2:0.5")
    assert top(rows)[0].startswith("holds: Best in the worst case: knn at L∞ 0.1 keeps an AUROC of")
    doubted = case("knn", 0.97, 0.85, scenario="pgd l2:0.5", verdict="fail")
    rows = [r for r in rows if (r.detector, r.scenario) != ("knn", "pgd l2:0.5")] + doubted
    assert "holds" not in " ".join(top(rows)).partition("Best in the worst case")[0]
    assert "Best in the worst case: msp at L2 0.5" in " ".join(top(rows))


def test_there_are_never_more_than_four():
    rows = case("msp", 0.97, 0.0, model="a") + case("knn", 0.9, 0.85, model="a")
    rows += case("vim", 0.9, 0.95, model="b", verdict="fail") + case("msp", 0.9, 0.9, model="b")
    rows += passes("msp", 0.9, 1.0, "a")
    assert [line.partition(":")[0] for line in top(rows)] == [
        "fell",
        "unbelieved",
        "holds",
        "compare",
    ]
    untested = [row(model=f"net-{i}") for i in range(9)]
    assert len(top(untested)) == 4
