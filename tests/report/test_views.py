"""The numbers by OOD set and by ID class."""

from pathlib import Path

import numpy as np
import pytest
from report_folder import LABELS, N, build, case, row

from rood.evaluation.store import Contents, Origin, SavedClasses, SavedScores, read_folder
from rood.metrics import auroc
from rood.report.numbers import Numbers
from rood.report.views import by_class, by_set


def test_every_ood_set_has_a_line_and_every_detector_a_column(folder: Path) -> None:
    views = by_set(Numbers(read_folder(folder).rows))
    assert [v.model for v in views] == ["digits-ce", "digits-aloe"]
    assert [line.name for line in views[0].lines] == ["fashion", "noise"]
    assert views[0].detectors == ["msp", "energy", "knn", "vim"]
    pair = views[0].lines[0].pairs[1]
    assert pair.clean.value > 0.9 > 0.1 > pair.attacked.value
    assert pair.verdict == "warn"


def test_one_set_needs_no_view() -> None:
    assert by_set(Numbers(case("msp", 0.9, 0.1))) == []


def test_each_class_has_its_own_auroc_and_accuracy(folder: Path) -> None:
    found = read_folder(folder)
    view = by_class(found, Numbers(found.rows))[0]
    assert {line.name for line in view.lines} == {"zero", "one", "two", "msp"}
    assert {line.n for line in view.lines} == {N // 4}
    line = next(line for line in view.lines if line.name == "two")
    saved = {s.origin: s for s in found.scores}
    get = lambda name, role, condition: next(
        s.scores for o, s in saved.items() if o == ("digits-ce", "knn", name, role, condition)
    )
    for pair_value, condition in (
        (line.pairs[2].clean.value, "clean"),
        (line.pairs[2].attacked.value, "pgd linf:0.1"),
    ):
        mine = get("inside", "inside", condition)[LABELS == 2]
        assert pair_value == pytest.approx(
            auroc(inside=mine, outside=get("fashion", "outside", condition))
        )
    classes = next(c for c in found.classes if c.model == "digits-ce")
    right = float(np.mean(classes.predicted[LABELS == 2] == 2))
    assert line.accuracy.value == pytest.approx(right)
    assert line.accuracy.low < 1


def test_the_least_accurate_classes_come_first_and_few_images_have_no_auroc() -> None:
    labels = np.repeat([0.0, 1.0, 2.0], [40, 40, 4])
    predicted = labels.copy()
    predicted[45:60] = 0
    folder = Contents(
        (row(),),
        scores=(
            SavedScores(Origin("net", "msp", "inside", "inside", "clean"), np.zeros(84), labels),
            SavedScores(Origin("net", "msp", "fashion", "outside", "clean"), np.ones(50)),
        ),
        classes=(SavedClasses("net", predicted, labels),),
    )
    (view,) = by_class(folder, Numbers(folder.rows))
    assert [(line.name, line.n) for line in view.lines] == [("1", 40), ("0", 40), ("2", 4)]
    first, second, few = (line.pairs[0] for line in view.lines)
    assert first.clean.value == second.clean.value == 1
    assert first.attacked is None
    assert few is None


def test_folders_without_labels_have_no_view_of_classes(tmp_path: Path) -> None:
    found = read_folder(build(tmp_path, labelled=False))
    assert by_class(found, Numbers(found.rows)) == []
