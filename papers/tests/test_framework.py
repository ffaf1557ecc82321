"""The frame of `rood reproduce`: parts, rows, what is not to be had, what was stopped."""

import errno
import json
import os
from dataclasses import replace

import pytest
import torch
from refusals import refused
from typer.testing import CliRunner

import rood_papers as reproduce
from rood.cli import app
from rood.detectors import MSP
from rood.errors import InputError, ResultsError, RoodWarning, UnknownNameError
from rood.metrics import Interval
from rood.models import backbones, checkpoint
from rood.models.wrap import wrap
from rood.threat import Linf
from rood_papers.framework.bench import System, judged
from rood_papers.framework.cells import Cell, ours, read_rows
from rood_papers.framework.claims import UNDECIDED, claim, compared, decided
from rood_papers.framework.context import SIZES, Context, NotRun
from rood_papers.framework.experiment import Experiment, Part
from rood_papers.framework.intervals import averaged
from rood_papers.framework.paper import combined, printed
from rood_papers.framework.run import run


def cell(row="a", **facts):
    return Cell("toy/table1", row, "c", "auroc", **facts)


class Toy:
    """An experiment of two parts that counts how often each is made."""

    def __init__(self, missing=()):
        self.made, self.missing = [], set(missing)

    def make(self, row):
        self.made.append(row)
        if row in self.missing:
            raise NotRun("no data")
        yield cell(row, paper=0.5).found(Interval(0.7, 0.6, 0.8), 3, 4)
        yield cell(row, attack="paper").found(0.2)

    def parts(self, context):
        for row in ("a", "b"):
            yield Part(row, (cell(row), cell(row, attack="paper")), lambda row=row: self.make(row))

    def claims(self, rows):
        yield claim("toy/table1", "b is there", ours(rows, row="b") is not None, "")

    def run(self, out, only="", **options):
        whole = Experiment("toy/table1", "a toy", "nothing", self.parts, self.claims)
        return list(run([whole], Context(SIZES["tiny"], out=out, **options), only))


def numbers(path):
    return [(r.row, r.attack, r.ours) for r in read_rows(path / "rows.jsonl")]


def test_rows_are_written_as_they_are_made_and_read_back(tmp_path):
    rows = Toy().run(tmp_path)
    assert read_rows(tmp_path / "rows.jsonl") == rows
    assert [r.ours for r in rows] == [0.7, 0.2, 0.7, 0.2, 1.0]
    assert rows[0].low == 0.6
    assert rows[0].n_out == 4
    assert json.loads((tmp_path / "manifest.json").read_text())["settings"]["size"] == "tiny"


def test_a_number_that_is_zero_is_a_number(tmp_path):
    row = cell("", paper=0.0, kind="point").found(Interval(0.0, 0.0, 0.1), x=0.0)
    assert Cell(**json.loads(json.dumps(row.as_json()))) == row
    assert (row.as_json()["x"], row.as_json()["low"], row.as_json()["paper"]) == (0.0, 0.0, 0.0)


def test_what_is_done_is_not_done_again(tmp_path):
    Toy().run(tmp_path)
    first = numbers(tmp_path)
    again = Toy()
    again.run(tmp_path)
    assert again.made == []
    assert numbers(tmp_path) == first


def test_one_part_can_be_run_and_the_others_later(tmp_path):
    first, rest = Toy(), Toy()
    first.run(tmp_path, only="b")
    assert first.made == ["b"]
    rest.run(tmp_path)
    assert rest.made == ["a"]
    with pytest.raises(InputError, match=r"a part of toy/table1, got 'c': the first is 'a'"):
        Toy().run(tmp_path, only="c")


@pytest.mark.parametrize("cut", [1, 60, 300])
def test_a_part_that_was_cut_short_comes_again_and_no_row_twice(tmp_path, cut):
    Toy().run(tmp_path)
    whole = sorted(map(str, numbers(tmp_path)))
    rows, parts = tmp_path / "rows.jsonl", tmp_path / "parts.jsonl"
    rows.write_text(rows.read_text()[:-cut])
    parts.write_text(parts.read_text().splitlines(True)[0])  # b was not finished
    again = Toy()
    again.run(tmp_path)
    assert again.made == ["b"]
    assert sorted(map(str, numbers(tmp_path))) == whole


def test_a_part_whose_rows_were_changed_is_run_again(tmp_path):
    Toy().run(tmp_path)
    rows = tmp_path / "rows.jsonl"
    whole, parts = rows.read_text(), finished(tmp_path)
    rows.write_text(whole.replace("0.7", "0.9", 1))
    assert rows.read_text() != whole
    again = Toy()
    with pytest.warns(RoodWarning, match=r"rows of toy/table1 \w in .* were changed: they are run"):
        again.run(tmp_path)
    assert len(again.made) == 1
    assert rows.read_text() == whole  # in the order of a run that nothing disturbed
    assert finished(tmp_path) == parts


def finished(folder):
    lines = (folder / "parts.jsonl").read_text().splitlines()
    return [(p["experiment"], p["part"]) for p in map(json.loads, lines)]


def test_parts_of_rood_0_1_have_no_checksum(tmp_path):
    Toy().run(tmp_path)
    parts = tmp_path / "parts.jsonl"
    said = [json.loads(line) for line in parts.read_text().splitlines()]
    old = [{k: v for k, v in p.items() if k != "sha256"} for p in said]
    parts.write_text("".join(json.dumps(p) + "\n" for p in old))
    again = Toy()
    again.run(tmp_path)
    assert again.made == []


@pytest.mark.parametrize("line", ["7", "{}", '{"experiment": [], "part": "a", "seconds": 1}', "{"])
@pytest.mark.parametrize("name", ["rows.jsonl", "parts.jsonl"])
def test_a_line_that_is_none_is_one_sentence(tmp_path, name, line):
    Toy().run(tmp_path)
    with (tmp_path / name).open("a") as file:
        file.write(line + "\n")
    refused(ResultsError, "remove the line and run again", Toy().run, tmp_path)


def test_what_is_not_to_be_had_has_a_reason_and_no_number_and_is_tried_again(tmp_path):
    rows = Toy(missing="a").run(tmp_path)
    assert [(r.row, r.ours, r.note) for r in rows[:2]] == [("a", None, "not run: no data")] * 2
    later = Toy()
    later.run(tmp_path)
    assert later.made == ["a"]
    assert not any(r.note.startswith("not run") for r in read_rows(tmp_path / "rows.jsonl"))


def test_what_other_experiments_wrote_stays(tmp_path):
    before = Toy(missing="a").run(tmp_path)

    def parts(context):
        one = Cell("toy/table2", "x", "c", "auroc")
        yield Part("p", (one,), lambda: [one.found(0.4)])

    other = Experiment("toy/table2", "", "", parts)
    assert [r.ours for r in run([other], Context(SIZES["tiny"], out=tmp_path))] == [0.4]
    assert read_rows(tmp_path / "rows.jsonl")[: len(before)] == before


def test_a_folder_of_another_size_is_refused(tmp_path):
    Toy().run(tmp_path)
    refused(ResultsError, "seed differ", Toy().run, tmp_path, seed=1)


def test_a_broken_part_is_an_error_after_all_others_are_done(tmp_path):
    def parts(context):
        yield Part("p", (cell(),), lambda: iter([1 / 0]))
        yield Part("q", (cell(),), lambda: [cell("q").found(0.3)])

    broken = Experiment("toy/table1", "", "", parts)
    with pytest.raises(ResultsError, match="1 parts failed, the first is toy/table1 p: ZeroDiv"):
        list(run([broken], Context(SIZES["tiny"], out=tmp_path)))
    assert numbers(tmp_path) == [("q", "clean", 0.3)]


def test_a_full_disk_ends_the_run_at_once(tmp_path, monkeypatch):
    toy = Toy()
    real = os.fsync

    def full(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/rows.jsonl"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match=r"cannot write to .*rows.jsonl \(no space left"):
        toy.run(tmp_path)
    assert toy.made == ["a"]


def test_half_a_line_of_a_finished_part_does_not_spoil_the_next(tmp_path):
    Toy().run(tmp_path)
    parts = tmp_path / "parts.jsonl"
    parts.write_text(parts.read_text()[:-5])
    for made in (["b"], []):
        again = Toy()
        again.run(tmp_path)
        assert again.made == made


def test_a_broken_part_leaves_the_page_of_the_others(tmp_path, monkeypatch):
    def parts(context):
        yield Part("p", (cell(),), lambda: iter([1 / 0]))
        yield Part("q", (cell(),), lambda: [cell("q").found(0.3)])

    broken = Experiment("toy/table1", "", "", parts)
    monkeypatch.setattr(reproduce, "chosen", lambda names: [broken])
    done = CliRunner().invoke(app, ["reproduce", "toy", "--out", str(tmp_path), "--device", "cpu"])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: 1 parts failed, the first is toy/table1 p: ZeroDivision")
    assert "30.00" in (tmp_path / "page.html").read_text()


def test_printed_numbers_are_those_of_the_papers():
    facts = {"inside": "cifar10", "method": "ALOE", "metric": "auroc"}
    assert printed("aloe", "table1", eps=1, **facts) == pytest.approx(0.9126)
    assert printed("aloe", "table1", eps=0, **facts) == pytest.approx(0.9834)
    near = {"outside": "cifar100", "model": "default", "metric": "fpr95_out"}
    assert printed("pro", "table1", inside="cifar10", method="KNN", **near) == pytest.approx(0.3764)
    assert printed("aloe", "table1", method="nobody") is None
    refused(InputError, "one number", printed, "aloe", "table1", **facts)


def test_a_claim_without_its_numbers_is_not_tested():
    tested = compared("toy/table1", "a above b", {"a": 0.9, "b": 0.8}, lambda a, b: a > b)
    untested = compared("toy/table1", "a above b", {"a": 0.9, "b": None}, lambda a, b: a > b)
    assert (tested.ours, tested.column) == (1.0, "a 0.9000, b 0.8000")
    assert (untested.ours, untested.column) == (None, "a 0.9000, b ?")
    assert untested.note == "not run: no data"


@pytest.mark.parametrize(
    ("values", "noise", "verdict"),
    [
        ((0.9, 0.8), 0.005, 1.0),
        ((0.8, 0.9), 0.005, 0.0),
        ((0.806, 0.8), 0.005, UNDECIDED),
        ((0.806, 0.8), 0.0, 1.0),
        ((0.8, 0.806), 0.005, UNDECIDED),
    ],
)
def test_a_verdict_that_noise_would_turn_is_none(values, noise, verdict):
    assert decided(lambda a, b: a > b, values, noise) == verdict


CLAIMED = ("aloe/table1", "aloe/table2", "fort/table1", "fort/table3", "fort/table4", "pro/table1")


@pytest.mark.parametrize("name", CLAIMED)
def test_what_a_paper_is_said_to_claim_its_own_numbers_bear_out(name, monkeypatch):
    """With the printed numbers in the place of ours no claim about them may fail."""
    for asked in ("has", "has_network"):
        monkeypatch.setattr(Context, asked, lambda self, *names: True)
    monkeypatch.setattr(Context, "network", lambda self, role: None)
    experiment = reproduce.experiments()[name]
    cells = [c for p in experiment.parts(Context(SIZES["small"])) for c in p.cells]
    rows = [replace(c, ours=c.paper) for c in cells if c.paper is not None]
    rows += [replace(r, row="GEN, PRO's base") for r in rows if r.row == "GEN"]
    found = list(experiment.claims(rows))
    assert [c.row for c in found if c.ours == 0] == []
    assert [c for c in found if c.ours == 1]


def test_a_mean_has_the_mean_of_the_ends():
    found = averaged([Interval(0.5, 0.4, 0.9), Interval(0.7, 0.6, 1.0)])
    assert found == pytest.approx((0.6, 0.5, 0.95))


def test_every_experiment_has_a_name_of_its_paper_and_says_what_it_needs():
    for name, e in reproduce.experiments().items():
        assert name == e.name
        assert e.paper in reproduce.PAPERS
        assert e.what
        assert e.needs
    assert {e.paper for e in reproduce.experiments().values() if e.on_digits} == {*reproduce.PAPERS}


def test_unknown_experiments_are_refused():
    refused(UnknownNameError, "paper", reproduce.chosen, ["aole/table1"])
    refused(UnknownNameError, "experiment", reproduce.chosen, ["aloe/table9"])


def test_every_class_is_learnt_from_however_few_images_there_are(tmp_path, bare):
    fit = Context(SIZES["tiny"], out=tmp_path).fit_images("digits/fit")
    assert len(fit) == 300
    assert torch.bincount(fit.labels).tolist() == [50] * 6


def test_a_network_in_a_folder_goes_before_the_shipped_one(tmp_path, bare):
    net = backbones.create("small_cnn", classes=6, channels=1, width=4, features=8)
    card = {"shape": (1, 28, 28), "classes": list("012345")}
    checkpoint.save(wrap(net), tmp_path / "digits-ce.safetensors", card)
    shipped = Context(SIZES["tiny"]).network("digits/ce").model
    own = Context(SIZES["tiny"], zoo=tmp_path).network("digits/ce").model
    given = Context(SIZES["tiny"], models={"digits/ce": str(tmp_path / "digits-ce.safetensors")})
    assert own.head.in_features == given.network("digits/ce").model.head.in_features == 8
    assert shipped.head.in_features != 8
    refused(NotRun, "no network cifar10-nobody", Context(SIZES["tiny"]).network, "cifar10/nobody")


def test_images_that_are_not_there_are_not_run_but_a_mistake_by_hand_is_an_error(bare, tmp_path):
    context = Context(SIZES["tiny"], data={"dtd": f"npz:{tmp_path}/none.npz"})
    refused(NotRun, "no data", context.images, "svhn")
    refused(ValueError, "does not exist", context.images, "dtd")
    assert not context.has("svhn")
    assert len(context.images("digits/near")) == 32


def test_the_command_lists_runs_and_refuses(tmp_path, bare):
    runner = CliRunner()
    listed = runner.invoke(app, ["reproduce"])
    assert listed.exit_code == 0
    assert "aloe/table1" in listed.output
    done = runner.invoke(
        app, ["reproduce", "pro/figure7", "--out", str(tmp_path), "--device", "cpu"]
    )
    assert done.exit_code == 0, done.output
    assert "digits, default" in done.output
    assert (tmp_path / "page.html").exists()
    for wrong in (["--size", "huge"], ["--model", "net"], ["--data", "=x"]):
        refused = runner.invoke(app, ["reproduce", "pro/figure7", "--out", str(tmp_path), *wrong])
        assert refused.exit_code == 1
        assert refused.output.startswith("error: expected")


def test_our_suite_lowers_the_scores_of_ood_images_within_the_budget(world, tmp_path):
    context = Context(SIZES["tiny"], out=tmp_path)
    detector, budget = MSP(world.model), Linf(0.1)
    clean = detector.score(world.inside)
    system = System.scored(detector, world.inside, world.outside, "toy")
    found = system.lowered(context, budget, "toy").images
    x = world.outside[: context.size.standard]
    assert len(found) == len(x) == 4
    assert budget.contains(found, x).all()
    assert (detector.score(found) < detector.score(x)).all()
    # where it stops early, it stops past every clean image of the other side
    still = detector.score(found) >= clean.min()
    further = replace(system, clean_in=clean - 100).lowered(context, budget, "toy").images
    assert (detector.score(further)[still] <= detector.score(found)[still] + 1e-3).all()


def test_our_suite_moves_both_sides_towards_each_other(world, tmp_path):
    context = Context(SIZES["small"], out=tmp_path)
    outside = {"first": world.outside[:2], "second": world.outside[2:5]}
    detector = MSP(world.model)
    before, after = judged(context, detector, world.inside[:4], outside, Linf(0.1), ("toy",))
    passed = {"inside": before["inside"] > max(before[n].max() for n in outside)}
    passed |= {n: before[n] < before["inside"].min() for n in outside}
    assert [len(v) for v in after.values()] == [4, 2, 3]
    assert (passed["inside"] | (after["inside"] > before["inside"])).all()
    assert all((passed[n] | (after[n] < before[n])).all() for n in outside)
    assert not any(p.all() for p in passed.values())


def test_an_entry_stands_for_a_line_per_combination_of_its_lists():
    entry = {"world": ["svhn", "cifar10"], "network": "{world}/oe", "eta": [0.0, 0.01], "n": 3}
    found = [(line["network"], line["eta"], line["n"]) for line in combined(entry)]
    assert found == [
        ("svhn/oe", 0.0, 3), ("svhn/oe", 0.01, 3), ("cifar10/oe", 0.0, 3), ("cifar10/oe", 0.01, 3)
    ]  # fmt: skip
    named = {"score": "ODIN PM={eta:g}", "name": "{score}, {code}", "eta": 0.0, "code": "logits"}
    assert [line["name"] for line in combined(named)] == ["ODIN PM=0, logits"]


def test_rows_behind_a_link_to_nothing_are_refused(tmp_path):
    rows = tmp_path / "rows.jsonl"
    assert read_rows(rows) == []
    rows.symlink_to(tmp_path / "gone")
    with pytest.raises(ResultsError, match="link to nothing: remove it"):
        read_rows(rows)
