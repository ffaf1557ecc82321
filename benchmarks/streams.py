"""False alarms of `rood.guard.Monitor` on ID streams, and images until it notices OOD images.

Scores are normal: N(0, 1) for ID images and N(shift, 1) for OOD ones. The calibration images of
each stream are drawn anew. Writes docs/results/streams.jsonl: `python -m benchmarks.streams`.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import rood
from rood.detectors import MSP
from rood.guard import Guard, Monitor
from rood.guard.calibration import calibrate

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "streams.jsonl"
CALIBRATION = 300
ARL = 10_000
STREAMS, LENGTH = 1000, 1000
REPEATS, BEFORE, LONGEST = 100, 200, 3000


def watched(guard: Guard, rng: np.random.Generator, seed: int) -> Monitor:
    """A monitor whose calibration scores are drawn anew."""
    drawn = calibrate(rng.normal(size=CALIBRATION))
    return Monitor(replace(guard, calibration=drawn), arl=ARL, seed=seed)


def first_alarm(monitor: Monitor, scores: np.ndarray) -> int | None:
    """The number of the first image that raises an alarm."""
    for score in scores.tolist():
        if monitor.add(score).alarm:
            return monitor.seen
    return None


def delay(guard: Guard, share: float, shift: float, seed: int) -> float:
    """Images from the first OOD image on until an alarm; LONGEST where there is none."""
    rng = np.random.default_rng((seed, int(100 * share), int(100 * shift)))
    monitor = watched(guard, rng, seed)
    scores = rng.normal(size=BEFORE + LONGEST)
    scores[BEFORE:] += shift * (rng.random(LONGEST) < share)
    found = first_alarm(monitor, scores)
    while found is not None and found <= BEFORE:  # a false alarm: the monitor has started again
        found = first_alarm(monitor, scores[found:])
    return LONGEST if found is None else found - BEFORE


def main() -> None:
    """Simulate and write."""
    base = calibrate(np.arange(100.0))
    guard = Guard(MSP(rood.zoo.load("digits-ce")), base, (1, 28, 28))
    rng = np.random.default_rng(0)
    streams = (rng.normal(size=LENGTH) for _ in range(STREAMS))
    alarms = sum(first_alarm(watched(guard, rng, i), s) is not None for i, s in enumerate(streams))
    known = {"arl": ARL, "calibration": CALIBRATION}
    rows = [
        {"kind": "false alarms", "streams": STREAMS, "images": LENGTH, "alarms": alarms, **known}
    ]
    for shift, auroc in ((2.0, 0.921), (4.0, 0.998)):
        for share in (0.05, 0.2, 1.0):
            found = [delay(guard, share, shift, seed) for seed in range(REPEATS)]
            low, middle, high = np.quantile(found, (0.05, 0.5, 0.95)).tolist()
            row = {"kind": "delay", "auroc": auroc, "share": share, "streams": REPEATS, **known}
            missed = sum(d == LONGEST for d in found)
            rows.append(
                row
                | {"median": middle, "low": low, "high": high, "missed": missed, "longest": LONGEST}
            )
            print(rows[-1])
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
