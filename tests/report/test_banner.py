"""The banner: one place decides whether the numbers of a page can be trusted."""

import pytest
from report_folder import case, row

from rood.evaluation.store import Contents
from rood.report.banner import doubts
from rood.report.numbers import Numbers

DONE = {"finished": True}


def titles(rows, manifest=DONE) -> list[str]:
    return [d.title for d in doubts(Contents(tuple(rows), manifest=manifest), Numbers(rows))]


def accuracy(value: float):
    return row(detector="", dataset="inside", metric="accuracy", value=value, n_out=0)


def test_a_sound_audit_has_no_banner():
    assert titles([*case("msp", 0.97, 0.0), accuracy(0.9)]) == []


@pytest.mark.parametrize(
    ("value", "classes", "guesses"),
    [(0.1, 10, True), (0.189, 10, True), (0.2, 10, False), (0.54, 2, True), (0.6, 2, False)],
)
def test_accuracy_near_chance(value, classes, guesses):
    manifest = DONE | {"models": {"net": {"classes": classes}}}
    found = titles([*case("msp", 0.97, 0.0), accuracy(value)], manifest)
    assert found == (["net guesses"] if guesses else [])


def test_without_the_number_of_classes_accuracy_says_nothing():
    assert titles([*case("msp", 0.97, 0.0), accuracy(0.01)]) == []


@pytest.mark.parametrize(
    ("facts", "same"),
    [
        ({"fingerprint": "ab"}, True),
        ({"fingerprint": "cd"}, False),
        ({"notes": ["60 of 100 images are in-distribution images too, such as 'a'"]}, True),
        ({"notes": ["9 of 10 images look the same as images that are in-distribution images too"]},
         True),
        ({"notes": ["40 of 100 images are in-distribution images too"]}, False),
    ],
)  # fmt: skip
def test_the_same_images_on_both_sides(facts, same):
    data = {"inside": {"role": "inside", "fingerprint": "ab"}}
    data["fashion"] = {"role": "outside"} | facts
    data["calibrate"] = {"role": "inside", "fingerprint": "ab"}
    found = titles(case("msp", 0.97, 0.0), DONE | {"data": data})
    assert found == (["The same images are on both sides"] if same else [])


def test_a_tiny_sample_names_its_side():
    rows = [row(n_in=12, n_out=400)]
    (doubt,) = doubts(Contents(tuple(rows), manifest=DONE), Numbers(rows))
    assert "only 12 images on the ID side:" in doubt.text
    assert titles([row(n_in=30, n_out=30)]) == []


def test_most_verdicts_fail():
    failed = {"verdict": "fail"}
    rows = case("msp", 0.97, 0.9, **failed) + case("knn", 0.97, 0.9, **failed)
    rows += case("vim", 0.97, 0.8)
    assert titles(rows) == ["Most attacks failed their own checks"]
    # an attack that succeeds is its own proof
    rows = case("msp", 0.97, 0.1, **failed) + case("knn", 0.97, 0.2, **failed)
    assert titles(rows) == []


def test_an_unfinished_audit():
    assert titles(case("msp", 0.97, 0.0), {"finished": False}) == ["This audit is unfinished"]


def test_a_setup_that_failed_a_check_is_named_once():
    failed = {"check": "class_order", "status": "fail", "found": "0.10 right", "do": "rename them"}
    guess = failed | {"check": "accurate"}
    manifest = DONE | {"diagnosis": [failed, guess, failed | {"status": "warn"}, "odd"]}
    rows = [*case("msp", 0.97, 0.0), accuracy(0.1)]
    assert titles(rows, manifest) == [
        "The setup failed the check “class order”",
        "The setup failed the check “accurate”",
    ]
    found = titles(rows, manifest | {"models": {"net": {"classes": 10}}})
    assert found == ["net guesses", "The setup failed the check “class order”"]
