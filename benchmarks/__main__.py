"""`make bench`: every claim of this folder, measured here and now."""

import sys
from pathlib import Path

from benchmarks import attack, guard, scoring, start
from benchmarks.measure import report

if __name__ == "__main__":
    claims = [*start.claims(), *scoring.claims(), *attack.claims(), *guard.claims()]
    report(claims, Path(__file__).with_name("results.jsonl"))
    sys.exit(0 if all(c.holds for c in claims) else 1)
