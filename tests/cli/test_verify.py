"""`rood audit --receipt` and `rood verify`: exit codes, lines and JSON."""

import json
import shutil

import pytest
from small_audit import small_command
from typer.testing import CliRunner

from rood.cli import app
from rood.cli.verify import given_by

DEVICE = ("--device", "cpu")


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def receipt(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("issued")
    more = ("--limit", "10", "--receipt", out / "receipt", "--by", "Ann", "--licence", "CC0")
    done = run(*small_command(files, out / "audit", *map(str, more)))
    assert done.exit_code == 0, done.output
    assert f"receipt: {out / 'receipt'}" in done.stdout
    return out / "receipt"


@pytest.fixture(scope="module")
def data(files):
    return [f"--data=inside={files / 'inside.npz'}", f"--data=stripes={files / 'stripes.npz'}"]


def test_a_receipt_says_who_issued_it(receipt):
    entry = json.loads((receipt / "entry.json").read_text())
    assert (entry["by"], entry["licence"]) == ("Ann", "CC0")
    assert "command" not in json.loads((receipt / "manifest.json").read_text())


def test_an_honest_receipt_is_verified_with_exit_code_0(receipt, data):
    said = run("verify", receipt, "--tier", "rescore", *data, *DEVICE)
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[-1] == "verified: tier rescore, 15 checks"


def test_without_images_it_is_not_checkable_with_exit_code_4(receipt):
    said = run("verify", receipt, "--tier", "rescore", *DEVICE)
    assert said.exit_code == 4
    assert said.stdout.splitlines()[-1].startswith("not checkable here: ")


def test_a_lie_is_exit_code_3_and_one_line(receipt, tmp_path):
    folder = shutil.copytree(receipt, tmp_path / "lie")
    (folder / "rows.jsonl").write_text("")
    said = run("verify", folder)
    assert said.exit_code == 3
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("LIE")]
    assert line == "LIE  schema files: rows.jsonl has another SHA-256 than entry.json says"
    told = run("verify", folder, "--json")
    assert json.loads(told.stdout)["verdict"] == "refuted"
    assert told.exit_code == 3


def test_a_spec_keeps_its_equals_signs():
    given = given_by(["net=a=b.pt2"], None, ["near=procedural:noise,n=3"], "cpu", None, False)
    assert (given.models, given.data) == ({"net": "a=b.pt2"}, {"near": "procedural:noise,n=3"})
    path = given_by(["dir/a=b.pt2"], None, None, "cpu", None, False)
    assert path.models == {"": "dir/a=b.pt2"}


def test_images_without_the_name_of_their_set_are_refused(receipt):
    said = run("verify", receipt, "--tier", "rescore", "--data", "digits:near")
    assert said.exit_code == 1
    assert "expected --data NAME=SPEC" in said.output


def test_reattack_needs_a_nonce(receipt):
    said = run("verify", receipt, "--tier", "reattack")
    assert said.exit_code == 1
    assert "expected a nonce" in said.output


def test_a_receipt_beside_the_results_is_refused(files, tmp_path):
    done = run(*small_command(files, tmp_path / "a", "--receipt", str(tmp_path / "a")))
    assert done.exit_code == 1
    assert "expected another folder for the receipt" in done.output
