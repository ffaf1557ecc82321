"""`rood certify` and `rood audit --certify`: rows that no attack gets below, beside the others."""

import json

from small_audit import small_command
from typer.testing import CliRunner

from rood.cli import app
from rood.evaluation.store import Results


def invoke(*words):
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done


def certifying(files, out):
    net, inside, outside = (files / n for n in ("net.safetensors", "inside.npz", "stripes.npz"))
    what = ["--model", net, "--inside", inside, "--outside", f"stripes={outside}"]
    how = ["--detectors", "msp,knn", "--eps", "0.001,0.002", "--limit", "20", "--method", "ibp"]
    return ["certify", *what, *how, "--device", "cpu", "--out", out]


def test_nothing_is_attacked_and_the_table_shows_what_is_certain(files, tmp_path):
    done = invoke(*certifying(files, tmp_path / "c"), "--quiet")
    assert "nothing attacked, certified by ibp linf:0.002" in done.stdout
    assert "of the column 'certified'" in done.stdout
    rows = Results(tmp_path / "c").rows
    assert {r.scenario for r in rows} == {"clean", "ibp linf:0.001", "ibp linf:0.002"}
    lowest = {r.detector: r for r in rows if r.metric == "certified_auroc" and r.side == "both"}
    for name in ("msp", "knn"):
        (line,) = (text for text in done.stdout.splitlines() if text.split()[:1] == [name])
        assert f"{lowest[name].value:.3f}" in line.split()
    assert (tmp_path / "c" / "report.html").stat().st_size > 10_000


def test_a_second_run_prints_the_same_rows_without_bounding_again(files, tmp_path, monkeypatch):
    first = invoke(*certifying(files, tmp_path / "c"), "--json").stdout
    assert {json.loads(line)["metric"] for line in first.splitlines()} >= {"certified_accuracy"}
    monkeypatch.setattr("rood.evaluation.certificates.score_bounds", None)
    assert invoke(*certifying(files, tmp_path / "c"), "--json").stdout == first


def test_settings_of_certificates_can_be_kept_in_a_file(files, tmp_path):
    kept = tmp_path / "c.toml"
    said = invoke(*certifying(files, tmp_path / "c"), "--write-config", kept).stdout
    assert f"use them by: rood certify {kept}" in said
    assert 'certify = "ibp"' in kept.read_text()
    assert not (tmp_path / "c").exists()
    invoke("certify", kept, "--quiet", "--out", tmp_path / "c")
    assert Results(tmp_path / "c").find(scenario="ibp linf:0.002")


def test_an_audit_adds_certificates(files, tmp_path):
    kept = tmp_path / "a.toml"
    invoke(*small_command(files, tmp_path / "a", "--certify", "--write-config", str(kept)))
    assert 'certify = "crown"' in kept.read_text()
    kept.write_text(kept.read_text().replace('"crown"', '"ibp"').replace('"knn"', '"energy"'))
    done = invoke(
        "audit", kept, "--steps", "1", "--limit", "20", "--quiet", "--out", tmp_path / "a"
    )
    assert "attacked by pgd linf:0.05, certified by ibp linf:0.05" in done.stdout
    rows = Results(tmp_path / "a").find(side="both", dataset="stripes", detector="msp")
    value = {(r.metric, r.scenario): r.value for r in rows}
    for eps in ("0.01", "0.05"):
        attacked, proved = ("auroc", f"pgd linf:{eps}"), ("certified_auroc", f"ibp linf:{eps}")
        assert value[attacked] >= value[proved]


def test_an_unknown_method_is_one_sentence(files, tmp_path):
    done = CliRunner().invoke(app, [*map(str, certifying(files, tmp_path / "c")), "--method", "x"])
    assert done.exit_code == 1
    assert done.output.endswith(
        "expected a method among ibp, crown-ibp, crown, alpha to certify by, got 'x'\n"
    )
