"""Classes held out: labels, outputs of the network, rows, and what is refused."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

import rood
from rood import data, metrics
from rood.data.base import ImageSet
from rood.errors import CapabilityError, InputError, UnknownNameError
from rood.evaluation.open_set import OpenSet, hold_out
from rood.evaluation.store import Results, read_folder
from rood.metrics import share_of


def images(labels, classes=(), name="inside"):
    y = torch.tensor(labels)
    return ImageSet(name, torch.rand(len(y), 1, 4, 4), y, classes)


def test_known_classes_become_the_outputs_and_the_others_come_behind():
    given = images([3, 0, 1, 2, 3, 1], classes=("ant", "bee", "cat", "dog"))
    found = OpenSet.of(["bee", 3], [given])
    assert (found.known, found.held_out) == ((0, 2), (1, 3))
    inside, outside = found.inside(given), found.outside(given)
    assert (inside.labels.tolist(), inside.classes) == ([0, 1], ("ant", "cat"))
    assert (outside.labels.tolist(), outside.classes) == (
        [3, 2, 3, 2],
        ("ant", "cat", "bee", "dog"),
    )
    assert torch.equal(inside.images, given.images[[1, 3]])
    assert torch.equal(outside.images, given.images[[0, 2, 4, 5]])


def test_a_name_goes_before_a_number():
    given = images([0, 1, 2], classes=("1", "10", "2"))  # folders in alphabetical order
    assert OpenSet.of(["10"], [given]).held_out == (1,)
    assert OpenSet.of([0], [given]).held_out == (0,)


def test_what_cannot_be_held_out_is_refused():
    named, plain = images([0, 1, 2], classes=("ant", "bee", "cat")), images([0, 1, 1, 3])
    say = lambda words, asked, given, kind=InputError: refused(
        kind, words, OpenSet.of, asked, [given]
    )
    say(
        "no class to hold out is called 'bea': did you mean 'bee'", ["bea"], named, UnknownNameError
    )
    say("expected numbers of classes from 0 to 3 to hold out, got '4'", ["4"], plain)
    say("expected numbers of classes from 0 to 3 to hold out, got '-1'", [-1], plain)
    say("expected names or numbers of classes to hold out, got 1.5", [1.5], plain)
    say("expected images of class 2 to hold it out, got none", [2], plain)
    say("expected at least 2 classes that are not held out, got 2 of 3", [0, 1], named)
    say("expected a label for every ID image to hold classes out", [0], images([0, -1, 1]))
    parts = {"test": images([0, 1, 2])}
    taken = {"open_set": images([0])}
    refused(InputError, "expected another name for", hold_out, ["0"], parts, taken)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return rood.wrap(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))


def test_a_network_of_all_classes_loses_their_outputs_alone(net):
    given = images([0, 1, 2, 3])
    made, said = OpenSet.of([1], [given]).network(net, "net", given)
    x = given.pixels()
    assert torch.equal(made(x).logits, net(x).logits[:, [0, 2, 3]])
    assert torch.equal(made(x).features, net(x).features)
    assert (made.classes, net.classes) == (3, 4)
    assert made.fingerprint() != net.fingerprint()
    assert "its features know them" in said


def test_a_network_without_the_classes_stays_as_it_is(net):
    given = images([0, 1, 2, 3, 4, 5])
    made, said = OpenSet.of([0, 5], [given]).network(net, "net", given)
    assert made is net
    assert said == "has no output for the classes held out (0, 5)"


def test_a_network_of_other_classes_is_refused(net):
    given = images([0, 1, 2, 3, 4, 5])
    words = "expected net to have 6 outputs, or 5 without the classes held out, got 4"
    refused(InputError, words, OpenSet.of([2], [given]).network, net, "net", given)


class Twice(nn.Module):
    """Its logits are those of its head, in another order behind it."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        z = self.head(x.flatten(1))
        return z + 0 * z.new_ones(4)


def test_a_network_that_needs_all_outputs_is_refused():
    given = images([0, 1, 2, 3])
    model = rood.wrap(Twice())
    words = "expected a network that works with some rows of its head alone, got Twice"
    refused(CapabilityError, words, OpenSet.of([1], [given]).network, model, "net", given)


def digits():
    """Digits 0 to 5 with labels, and 6 to 9 as two classes more, which no network here knows."""
    inside, near = data.load("digits:inside", limit=400), data.load("digits:near", limit=200)
    more = 6 + torch.arange(200) % 2
    return (torch.cat([inside.images, near.images]), torch.cat([inside.labels, more]))


AUDIT = {"threats": [0.05], "attack": rood.attacks.PGD(steps=2), "limit": 80}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A network that has never seen the classes held out."""
    out = tmp_path_factory.mktemp("held_out")
    with pytest.warns(rood.errors.RoodWarning, match="has no output for the classes held out"):
        return rood.audit(
            "digits-ce", ["msp", "knn"], inside=digits(), open_set=[6, 7], out=out, **AUDIT
        )


def test_rows_follow_from_the_scores_and_classes_of_the_folder(results):
    folder = read_folder(results.folder)
    saved = {(s.origin.detector, s.origin.dataset, s.origin.condition): s for s in folder.scores}
    (classes,) = folder.classes
    right = classes.predicted == classes.labels
    for d in ("msp", "knn"):
        s_in, s_out = saved[d, "inside", "clean"], saved[d, "open_set", "clean"]
        tau = metrics.threshold_at_tpr(saved[d, "calibrate", "clean"].scores)
        value = lambda metric, **of: results.find(detector=d, metric=metric, **of)[0].value  # noqa: B023
        assert value("oscr", side="none") == pytest.approx(
            metrics.oscr(inside=s_in.scores, right=right, outside=s_out.scores)
        )
        assert value("ccr_fixed") == share_of(right & (s_in.scores <= tau)).value
        for number in range(6):
            mine = classes.labels == number
            assert value(f"class_{number}_ccr_fixed") == (right & (s_in.scores <= tau))[mine].mean()
            assert value(f"class_{number}_auroc") == pytest.approx(
                metrics.auroc(inside=s_in.scores[mine], outside=s_out.scores)
            )
        for number in (6, 7):
            theirs = s_out.scores[s_out.labels == number]
            assert value(f"class_{number}_fpr95_in_fixed") == (theirs <= tau).mean()
            assert value(f"class_{number}_auroc") == pytest.approx(
                metrics.auroc(inside=s_in.scores, outside=theirs)
            )


def test_oscr_has_an_interval_and_where_ood_is_attacked_a_verdict(results):
    by_side = defaultdict(list)
    saved = next(s for s in read_folder(results.folder).scores if s.origin.dataset == "open_set")
    for row in results.find(metric="oscr"):
        assert row.low <= row.value <= row.high
        assert row.n_in > 0
        assert row.n_out == len(saved.scores)
        by_side[row.side].append(row.verdict)
    assert set(by_side) == {"none", "outside"}
    assert set(by_side["none"]) == {"-"}
    assert set(by_side["outside"]) <= {"pass", "warn", "fail"}
    accuracy = results.find(metric="accuracy")[0].value
    assert all(row.value <= accuracy for row in results.find(metric="oscr"))


def test_a_second_run_gives_the_same_rows(results):
    before = (results.folder / "rows.jsonl").read_bytes()
    with pytest.warns(rood.errors.RoodWarning):
        rood.audit(
            "digits-ce", "msp,knn", inside=digits(), open_set="6,7", out=results.folder, **AUDIT
        )
    assert (results.folder / "rows.jsonl").read_bytes() == before


def test_a_network_that_knows_them_is_audited_without_their_outputs(tmp_path):
    with pytest.warns(rood.errors.RoodWarning, match="its features know them"):
        rood.audit(
            "digits-ce",
            ["energy"],
            inside=data.load("digits:inside", limit=500),
            outside={"patches": data.load("digits:patches", limit=30)},
            open_set=2,
            threats=[],
            sides=["both"],
            out=tmp_path,
        )
    found = Results(tmp_path)
    assert {r.dataset for r in found.find(metric="oscr")} == {"open_set", "patches"}
    # labels of another set are no classes of this one
    assert {r.metric for r in found.rows if r.dataset == "patches"} >= {"class_0_auroc"}
    assert not [r for r in found.rows if r.dataset == "patches" and "class_2" in r.metric]
    assert found.find(metric="accuracy")[0].value > 0.9
    page = (tmp_path / "report.html").read_text()
    assert "Classes held out" in page
    assert "Known classes" in page


def test_corrupted_id_images_raise_false_alarms(tmp_path):
    rood.audit(
        "digits-ce",
        ["msp"],
        inside=data.load("digits:inside", limit=400),
        outside={"patches": data.load("digits:patches", limit=30)},
        threats=[],
        corruptions=5,
        limit=50,
        anyway=True,
        out=tmp_path,
    )
    found = Results(tmp_path)
    rows = [r for r in found.rows if r.metric == "fpr95_out_fixed" and r.dataset == "inside"]
    assert [r.scenario for r in rows] == [
        *(f"{k}:5" for k in rood.corruptions.names()),
        "corrupted:5",
    ]
    *kinds, every = rows
    assert all(r.side == "none" and r.n_in == 50 and r.low <= r.value <= r.high for r in rows)
    assert every.value == pytest.approx(np.mean([r.value for r in kinds]))
    saved = {s.origin.dataset: s for s in read_folder(tmp_path).scores}
    tau = metrics.threshold_at_tpr(saved["calibrate"].scores)
    for row in kinds:
        assert row.value == (saved[f"inside under {row.scenario}"].scores > tau).mean()
    x = data.load("digits:inside", limit=400)
    assert every.value > found.find(metric="fpr95_out_fixed", dataset="patches")[0].value
    assert len(x) == 400
    assert "False alarms on corrupted ID images" in (tmp_path / "report.html").read_text()


def test_mistakes_are_refused_in_one_sentence(tmp_path):
    x = data.load("digits:inside", limit=300)
    usual = {"inside": x, "threats": [], "out": tmp_path}
    say = lambda kind, words, **more: refused(
        kind, words, rood.audit, "digits-ce", **({"detectors": "msp"} | usual | more)
    )
    say(InputError, "expected OOD images as outside, or classes as open_set, got neither")
    say(InputError, "expected names or numbers of classes to hold out", open_set=[1.5])
    say(
        InputError,
        "expected a severity of corruptions from 1 to 5, got 6",
        corruptions=6,
        open_set=0,
    )
    made = rood.detectors.MSP(rood.zoo.load("digits-ce"))
    words = "expected names of detectors where classes are held out"
    refused(InputError, words, rood.audit, made.model, [made], open_set=0, **usual)
    words = "expected an audit of images that others can load for a receipt"
    say(CapabilityError, words, open_set=0, anyway=True, receipt=tmp_path / "receipt")
