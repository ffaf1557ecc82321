"""Widths of our bounds over those of auto_LiRPA, on the same networks and images.

    ROOD_AUTO_LIRPA=DIR python -m benchmarks.beside_auto_lirpa [NAME ...]

DIR is a checkout of auto_LiRPA, which is not installed with rood. All logits in float64; the claim
is that CROWN is within 1 % and that no bound is looser than interval bounds. Rows go to
docs/results/certify-auto-lirpa.jsonl; a second run measures what is missing.
"""

import argparse
import copy
import sys
import time

import rood
from benchmarks.measure import RESULTS, ROOT, conditions
from rood import data
from rood.threat import Linf
from rood_zoo.rows import Rows

NAMES = ("digits-ce", "digits-aloe", "digits-certified")
BUDGETS = (0.02, 0.1)
IMAGES = 4


def row(name: str, eps: float, method: str) -> dict[str, object]:
    """Widths of the logits, ours over theirs, and the seconds of both."""
    import lirpa
    from auto_LiRPA import __version__

    model = copy.deepcopy(rood.zoo.load(name)).double()
    x = data.load("digits:near", limit=IMAGES).pixels().double()
    took, boxes = [], []
    for bounds in (lirpa.ours, lirpa.theirs):
        start = time.process_time()
        boxes.append(bounds(model, x, Linf(eps), method))
        took.append(round(time.process_time() - start, 2))
    (low, high), theirs = boxes
    share = (high - low) / (theirs.high - theirs.low)
    return {
        "network": name,
        "eps": eps,
        "method": method,
        "images": IMAGES,
        "mean": share.mean().item(),
        "most": share.max().item(),
        "least": share.min().item(),
        "seconds": took[0],
        "seconds of auto_LiRPA": took[1],
        "auto_LiRPA": __version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import lirpa

    if not lirpa.FOLDER:
        sys.exit("expected a folder of auto_LiRPA in ROOD_AUTO_LIRPA, got none")
    sys.path[:0] = lirpa.FOLDER.split(":")
    key = ("network", "eps", "method")
    rows = Rows(RESULTS / "certify-auto-lirpa.jsonl", key, **conditions())
    for name in args.names:
        for eps in BUDGETS:
            for method in lirpa.METHODS:
                if not rows.has(network=name, eps=eps, method=method):
                    found = row(name, eps, method)
                    print(found, flush=True)
                    rows.write(**found)


if __name__ == "__main__":
    main()
