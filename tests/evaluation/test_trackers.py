"""Numbers, facts and files of an audit reach MLflow and Weights & Biases."""

import sys
from dataclasses import replace

import pytest
from fake_trackers import FAKES
from report_folder import build, row

from rood import Results
from rood.errors import CapabilityError, ResultsError, UnknownNameError
from rood.evaluation import trackers
from rood.evaluation.store import Store

NAME = "auroc/digits-ce/msp/fashion/pgd_linf_0.05/both"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return Results(build(tmp_path_factory.mktemp("results"), networks=("digits-ce",)))


@pytest.fixture(params=FAKES)
def fake(request, monkeypatch):
    found = FAKES[request.param]()
    monkeypatch.setitem(sys.modules, request.param, found)
    return found


def test_every_number_the_page_and_the_rows_are_logged(results, fake):
    results.log_to(fake.__name__)
    numbers = [r for r in results.rows if not r.metric.startswith("flag_")]
    assert len(fake.values) == len(numbers) + 1  # the worst
    (attacked,) = results.find(
        metric="auroc", detector="msp", dataset="fashion", scenario="pgd linf:0.05", side="both"
    )
    assert fake.values[NAME] == attacked.value
    assert fake.values["worst_auroc"] == pytest.approx(results.worst(), nan_ok=True)
    assert fake.facts["rood.networks"] == "digits-ce"
    assert "rood.attack" in fake.facts
    assert [path.name for path in fake.files] == ["rows.jsonl"]  # no page was made here
    assert [run.ended for run in fake.runs] == ["finished"]


def test_a_page_is_logged_where_there_is_one(fake, tmp_path):
    (tmp_path / "report.html").write_text("the page")
    (tmp_path / "rows.jsonl").write_text(row().line())
    Results(tmp_path).log_to(fake.__name__)
    assert [path.name for path in fake.files] == list(trackers.FILES)


def test_the_run_that_is_active_is_used_and_left_open(results, fake):
    with fake.start() as mine:
        results.log_to(fake.__name__)
        results.log_to(fake.__name__)
        assert fake.run is mine
    assert fake.runs == [mine]
    assert NAME in fake.values


def test_names_of_any_letters_and_thousands_of_rows_are_taken(fake, tmp_path):
    names = [f"a b:{i}/../" for i in range(2500)]
    lines = [replace(row(), model="..", dataset=name, value=0.5).line() for name in names]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    Results(tmp_path).log_to(fake.__name__)
    assert len(fake.values) == 2500


def test_offline_keeps_wandb_on_this_machine(results, monkeypatch):
    fake = FAKES["wandb"]()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    results.log_to("wandb")
    assert (fake.about["project"], fake.about["mode"]) == ("rood", None)
    monkeypatch.setenv("ROOD_OFFLINE", "1")
    results.log_to("wandb")
    assert fake.about["mode"] == "offline"


def test_a_tracker_that_fails_is_one_sentence_that_names_the_folder(results, fake, monkeypatch):
    def refuse(*args, **more):
        raise ConnectionError("no server\nat all")

    monkeypatch.setattr(fake, "set_tags" if fake.__name__ == "mlflow" else "Artifact", refuse)
    with pytest.raises(ResultsError, match="got ConnectionError: no server: ") as caught:
        results.log_to(fake.__name__)
    assert str(results.folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [run.ended for run in fake.runs] == ["ConnectionError"]


@pytest.mark.parametrize("name", FAKES)
def test_a_tracker_that_is_not_installed_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CapabilityError, match=rf"needs {name}: pip install 'rood\[{name}\]'"):
        trackers.tracker(name)


def test_no_such_tracker():
    with pytest.raises(UnknownNameError, match="did you mean 'mlflow'"):
        trackers.tracker("mlfow")


def test_the_manifest_may_be_missing(fake, tmp_path):
    (tmp_path / "rows.jsonl").write_text(row().line())
    assert Store(tmp_path).manifest() is None
    Results(tmp_path).log_to(fake.__name__)
    assert fake.facts["rood.networks"] == "net"
