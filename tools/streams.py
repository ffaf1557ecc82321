"""docs/how-to/watch.md, with a table of the rows that `python -m benchmarks.streams` wrote."""

from tools.markdown import RESULTS, read, table

FILE = RESULTS / "streams.jsonl"
HEAD = """# Watch a stream

Is what the camera sends still what the guard was calibrated on? A threshold answers for one image; a monitor adds up what many say.

```sh
rood fit --model net.safetensors --detector knn --inside folder:photos --out guard
rood watch guard images/ --arl 10000
rood watch guard - --json          # file names on stdin
rood watch guard images/ --page stream.html
```

`rood watch` reads a folder by name, or file names from stdin, one a line. It prints the alarms; with `--json` one object per image:
`file`, `number`, `score`, `accept`, `p`, `evidence`, `alarm`. `--page` writes one file that opens offline: the evidence over the images with the line at
which an alarm is raised, and a table of the alarms.

In Python:

<!-- setup:
from rood.detectors import MSP
guard = rood.Guard.calibrated(MSP(model), validation)
-->
```python
from rood.guard import Monitor

monitor = Monitor(guard, arl=10_000)
for reading in monitor.see(x):
    if reading.alarm:
        print("alarm at image", reading.number)
```

## What the alarm promises

Each image gets a conformal p-value: its rank among the scores of the calibration images and of the stream so far, ties broken at random. While all of
them come from the same source in random order, the p-values are independent and uniform, for every network and detector. The monitor bets against
that (Shiryaev-Roberts, nine bets on small p-values), which gives:

- **Average run length.** Without a change, the first alarm comes after `--arl` images or more on average.
- **False alarms.** n images raise one with probability n / `--arl` at most.

Both are exact, not asymptotic, over the draw of calibration images and stream. The promise is about the first alarm: after it the evidence starts again and the
stream is forgotten. It ends, too, where images are confirmed. Frames of a video are not in random order: watch one in every so many. What an attacker sends is not covered."""
CONFIRM = """## Confirm and calibrate again

Where somebody has looked and the images are ID after all, say so: they join the calibration images, and the evidence starts again. Draw
the images to look at by chance, not by their score.

```python
monitor.confirm(x_in)
guard = monitor.recalibrated()  # the threshold, set on calibration and confirmed images
```

A guard of an earlier version has no calibration scores: fit it again."""


def page() -> str:
    """The whole page."""
    alarms, *delays = read(FILE)
    n, images = alarms["streams"], alarms["images"]
    share, bound = alarms["alarms"] / n, images / alarms["arl"]
    measured = (
        "## Measured\n\nGenerated from `docs/results/streams.jsonl`, which `python -m "
        f"benchmarks.streams` writes: {alarms['calibration']} calibration images, `--arl "
        f"{alarms['arl']}`, normal scores. Of {n:,} ID streams of {images:,} images, "
        f"{alarms['alarms']} raised an alarm: {share:.1%}, where at most {bound:.0%} is promised. "
        "Images from the first OOD image to the alarm (median, and from the fastest to the slowest "
        f"of the middle 90 %; {delays[0]['streams']} streams each):"
    )
    cells = table(
        ["AUROC of one image", "5 % OOD", "20 % OOD", "all OOD"],
        [
            [f"{a:g}", *(_cell(r) for r in delays if r["auroc"] == a)]
            for a in dict.fromkeys(r["auroc"] for r in delays)
        ],
    )
    return "\n\n".join([HEAD, measured, cells, CONFIRM]) + "\n"


def _cell(row: dict[str, float]) -> str:
    longest = row["longest"]
    high = f"over {longest:,}" if row["high"] >= longest else f"{row['high']:.0f}"
    return f"{row['median']:.0f} ({row['low']:.0f} to {high})"
