"""The findings network by network: what the page says is a pure function of the rows."""

import math

from report_folder import case, flag, row

from rood.evaluation.rows import Row
from rood.report import findings
from rood.report.by_network import by_network
from rood.report.numbers import Numbers
from rood.report.outcomes import Sentence, explain


def headline(rows: list[Row]) -> str:
    return findings.headline(Numbers(rows))


def sentences(rows: list[Row]) -> list[Sentence]:
    return by_network(Numbers(rows))


def text(sentence: Sentence) -> str:
    return f"{sentence.lead} {sentence.rest}"


def said(rows: list[Row]) -> str:
    return "\n".join(text(s) for s in sentences(rows))


def test_a_detector_that_falls_is_named_with_network_budget_and_both_numbers() -> None:
    first = sentences(case("MSP", 0.97, 0.004))[0]
    assert first.kind == "fell"
    assert text(first) == (
        "Do not trust MSP on net: an attack within L∞ 0.1 brings its AUROC from 0.97 to 0.00 "
        "(OOD images: fashion)."
    )


def test_when_everything_falls_the_page_says_so() -> None:
    rows = case("msp", 0.97, 0.0) + case("knn", 0.95, 0.31)
    assert headline(rows) == "Every detector falls under attack."
    assert "Also fallen on net: knn (0.95\u00a0→\u00a00.31)." in said(rows)
    assert "No detector on net survives: the best in the worst case, knn" in said(rows)


def test_the_one_survivor_is_named() -> None:
    rows = case("msp", 0.97, 0.0) + case("knn", 0.95, 0.91)
    assert headline(rows) == "Only knn stays above a coin toss under attack."
    assert "Best in the worst case on net: knn, which keeps an AUROC of 0.91" in said(rows)
    assert "Still standing on net: knn (0.95\u00a0→\u00a00.91)" in said(rows)


def test_the_worst_dataset_counts_and_its_own_clean_number_stands_beside_it() -> None:
    rows = case("msp", 0.80, 0.70, dataset="noise") + case("msp", 0.93, 0.12)
    assert "from 0.93 to 0.12 (OOD images: fashion)" in said(rows)


def test_the_largest_eps_counts() -> None:
    rows = case("msp", 0.97, 0.6, scenario="pgd linf:8/255") + case("msp", 0.97, 0.9)
    assert "(0.97\u00a0→\u00a00.90)" in said(rows)
    rows = case("msp", 0.97, 0.4, scenario="pgd linf:128/255") + case("msp", 0.97, 0.9)
    assert "an attack within L∞ 128/255 ≈ 0.5 brings its AUROC from 0.97 to 0.40" in said(rows)


def test_a_weakened_detector_is_neither_fallen_nor_sound() -> None:
    kinds = {s.kind for s in sentences(case("msp", 0.97, 0.6))}
    assert kinds == {"weak"}
    assert headline(case("msp", 0.97, 0.6)) == (
        "No detector falls to a coin toss, but the attack takes msp from 0.97 to 0.60."
    )


def test_a_one_sided_attack_is_said_to_be_one() -> None:
    rows = case("msp", 0.97, 0.85, side="outside")
    assert "Only OOD images were attacked; with both sides attacked it can only be" in said(rows)
    assert "Only" not in said(case("msp", 0.97, 0.85))


def test_both_sides_are_preferred_to_one_even_where_one_is_lower() -> None:
    rows = case("msp", 0.97, 0.2, side="outside") + case("msp", 0.97, 0.3)
    assert "to 0.30" in said(rows)


def test_without_an_attack_nothing_is_claimed() -> None:
    rows = [row(value=0.97), row(detector="knn", value=0.98)]
    assert headline(rows).startswith("No attack was run")
    assert [s.kind for s in sentences(rows)] == ["untested"]
    assert "clean images only. The best of them is knn, with an AUROC of 0.98." in said(rows)


def test_detectors_that_were_not_attacked_are_named() -> None:
    assert "Not attacked on net (L∞ 0.1): knn." in said(
        [*case("msp", 0.97, 0.1), row(detector="knn")]
    )


def test_a_high_number_behind_a_failed_attack_is_not_believed() -> None:
    rows = [*case("msp", 0.97, 0.95, verdict="fail"), flag("zero_gradient", "fail")]
    found = sentences(rows)
    assert {s.kind for s in found} == {"unbelieved"}
    assert "Do not believe the attacked AUROC of 0.95 of msp on net" in text(found[0])
    assert "(the gradient is zero for many images)" in text(found[0])
    assert "none of its detectors can be recommended" in text(found[-1])
    said_of_all = "No attacked number can be believed: the attacks failed their own checks."
    assert headline(rows) == said_of_all


def test_an_unbelieved_number_is_never_the_best() -> None:
    rows = case("msp", 0.97, 0.95, verdict="fail") + case("knn", 0.95, 0.55)
    assert "Best in the worst case on net: knn" in said(rows)


def test_a_fall_is_a_fall_though_the_number_behind_a_failed_attack_may_be_lower_still() -> None:
    rows = [*case("msp", 0.97, 0.1, verdict="fail"), flag("random_search_wins", "fail")]
    first = sentences(rows)[0]
    assert first.kind == "fell"
    assert "0.10 itself is not to be believed: the true one may be lower still" in text(first)


def test_a_fall_outside_the_budget_proves_nothing() -> None:
    rows = [*case("msp", 0.97, 0.1, verdict="fail"), flag("left_the_threat_model", "fail")]
    assert {s.kind for s in sentences(rows)} == {"unbelieved"}


def test_a_warning_comes_with_its_reason_and_only_from_the_same_case() -> None:
    rows = [*case("msp", 0.97, 0.1, verdict="warn"), flag("tied_scores", "warn")]
    rows.append(flag("zero_gradient", "warn", detector="knn"))
    assert "raised a warning (many scores are equal): a better one may go lower" in said(rows)
    assert "gradient is zero" not in said(rows)


def test_success_lost_by_rounding_alone_means_that_the_number_is_too_low() -> None:
    lost = [flag("lost_by_rounding", "warn")]
    for attacked in (0.6, 0.1):
        rows = case("msp", 0.97, attacked, verdict="warn")
        told = said(rows + lost)
        assert "stored with 8 bits): for images stored with 8 bits the AUROC is higher." in told
        assert "go lower" not in told
        told = said(rows + lost + [flag("tied_scores", "warn")])
        assert "raised a warning (many scores are equal): a better one may go lower." in told
        assert "stored with 8 bits): for images stored with 8 bits the AUROC is higher." in told
    both = case("msp", 0.97, 0.6, verdict="warn") + case("knn", 0.97, 0.6, verdict="warn")
    told = said(both + lost + [flag("tied_scores", "warn", "knn")])
    assert "The attack on knn raised a warning (many scores are equal): a better one" in told
    assert "The attack on msp raised a warning (part of its success" in told


def test_what_another_network_buys_and_costs_is_said() -> None:
    rows = case("msp", 0.97, 0.1, model="ce") + case("knn", 0.96, 0.9, model="aloe")
    rows += [
        row(model=model, detector="", metric="accuracy", value=value)
        for model, value in (("ce", 0.99), ("aloe", 0.95))
    ]
    assert text(sentences(rows)[-1]) == (
        "aloe resists better than ce: from ce to aloe the best worst-case AUROC at L∞ 0.1 goes "
        "from 0.10 (msp) to 0.90 (knn); the accuracy on clean images goes from 0.99 to 0.95."
    )
    rows = case("msp", 0.97, 0.1, model="ce") + case("msp", 0.97, 0.12, model="aloe")
    assert "No network resists better: at L∞ 0.1 the best worst-case AUROC is about" in said(rows)


def test_two_norms_are_two_attackers() -> None:
    rows = case("msp", 0.97, 0.1) + case("msp", 0.97, 0.9, scenario="pgd l2:0.5")
    assert "within L∞ 0.1" in said(rows)
    assert "within L2 0.5" in said(rows)


def test_no_rows_and_nan_are_no_numbers() -> None:
    assert headline([]) == "There are no numbers to judge yet."
    assert sentences([]) == []
    rows = case("msp", 0.97, math.nan)
    assert "nan" not in said(rows)
    assert Numbers(rows).get("auroc", "net", "msp", ["pgd linf:0.1"], ["both"]) == []


def test_unknown_flags_keep_their_name_and_known_ones_are_explained() -> None:
    assert explain("flag_brand_new").title == "brand new"
    assert explain("flag_").title == "unnamed flag"
    assert explain("flag_zero_gradient").title == "No gradient to follow"
