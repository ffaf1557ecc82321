"""The example for a user's own model runs as it is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "own_model.py"


@pytest.mark.slow
def test_own_network_and_own_folders_lead_to_a_report(tmp_path):
    pytest.importorskip("mlxtend", reason="needs mlxtend: rood[demo]")
    command = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    aurocs = {
        (m[1], m[2]): float(m[3])
        for line in lines
        if (m := re.match(r"(msp|knn), (\w+) attacked: AUROC (\d\.\d\d), (pass|warn|fail|-)", line))
    }
    assert len(aurocs) == 8
    assert aurocs["msp", "none"] > 0.75
    assert aurocs["msp", "both"] < aurocs["msp", "none"]
    assert lines[-1] == "report: own-audit/report.html"
    page = (tmp_path / "own-audit" / "report.html").read_text()
    assert "knn" in page


def test_the_heart_of_the_script_is_short():
    text = EXAMPLE.read_text()
    body = text[text.index("def main(") : text.index("def own_network(")]
    statements = [line for line in body.splitlines() if re.match(r"    \S", line)]
    assert len(statements) <= 12
