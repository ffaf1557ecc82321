"""Tables of classes held out and of corrupted ID images, from rows alone."""

from report_folder import row

from rood.report.asked import asked
from rood.report.numbers import Numbers

MANIFEST = {
    "open_set": {"known": [0, 2], "held_out": [1]},
    "data": {"open_set": {"classes": ["ant", "cat", "bee"]}},
}


def sheets(rows):
    return {sheet.title: sheet for sheet in asked(Numbers(rows), MANIFEST)}


def cell(metric, value, dataset="open_set", **more):
    return row(metric=metric, dataset=dataset, value=value, detector="knn", **more)


OPEN = [
    cell("auroc", 0.9),
    cell("oscr", 0.8),
    cell("oscr", 0.7, scenario="pgd linf:0.1", side="outside", verdict="pass"),
    cell("oscr", 0.6, scenario="pgd linf:0.2", side="outside", verdict="pass"),
    cell("ccr_fixed", 0.85, "inside"),
    cell("fpr95_in_fixed", 0.3),
    cell("class_0_auroc", 0.91),
    cell("class_2_auroc", 0.92),
    cell("class_1_auroc", 0.93),
    cell("class_2_auroc", 0.1, "svhn"),
    cell("class_0_ccr_fixed", 0.81, "inside"),
    cell("class_2_ccr_fixed", 0.82, "inside"),
    cell("class_1_fpr95_in_fixed", 0.4),
]


def values(line):
    return [found and found.value for found in line[1]]


def test_an_ordinary_audit_has_none():
    assert sheets([row(), row(metric="fpr95_out_fixed")]) == {}


def test_classes_held_out_have_a_line_for_each_detector_and_for_each_class():
    found = sheets(OPEN)
    (line,) = found["Classes held out"].lines
    assert (line[0], values(line)) == ("knn", [0.9, 0.8, 0.6, 0.85, 0.3])
    known, held_out = found["Known classes"], found["Classes held out, one by one"]
    assert [(name, values((name, cells))) for name, cells in known.lines] == [
        ("ant", [0.91, 0.81]),
        ("cat", [0.92, 0.82]),
    ]
    assert [(name, values((name, cells))) for name, cells in held_out.lines] == [
        ("bee", [0.93, 0.4])
    ]


def test_classes_without_names_are_numbered():
    (sheet,) = [s for s in asked(Numbers(OPEN), {}) if s.title == "Known classes"]
    assert [name for name, _ in sheet.lines] == ["0", "2"]


def test_all_corruptions_together_stand_before_each():
    rows = [cell("auroc", 0.9, "svhn"), cell("fpr95_out_fixed", 0.05, "svhn")]
    rows += [
        cell("fpr95_out_fixed", value, "inside", scenario=f"{kind}:3")
        for kind, value in (("fog", 0.2), ("shot_noise", 0.4), ("corrupted", 0.3))
    ]
    (sheet,) = sheets(rows).values()
    assert sheet.heads == ["clean", "corrupted:3", "fog:3", "shot noise:3"]
    assert values(sheet.lines[0]) == [0.05, 0.3, 0.2, 0.4]
