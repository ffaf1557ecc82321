"""What certificates cost: CPU time over that of a forward pass of the same batch in float32.

    python -m benchmarks.certifying

Networks whose scalar head was trained for certificates, where two rows of coefficients bound a
score, and one of six layers that was not, scored by MSP, which needs two rows for each pair of
classes and for each logit. On one core.
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch

import rood
from benchmarks.measure import Claim, report
from rood import data
from rood.certify import Certifier, Method
from rood.detectors import MSP, Head
from rood.detectors.base import Detector
from rood.shapes import Images
from rood.threat import Threat, parse

IMAGES = 16
RUNS = 2
PASSES = 20  # timed at once
BARS: dict[Method, float] = {"crown-ibp": 60.0, "crown": 2000.0}
NETWORKS = {
    "digits-certified": "0.1",
    "cifar10-certified": "1/255",
    "digits-jem": "0.02",
}


def spent(call: Callable[[], object], times: int) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def images(name: str) -> Images:
    if name.startswith("digits"):
        return data.load("digits:inside", limit=IMAGES).pixels()
    shape = rood.zoo.card(name)["shape"]
    return data.load(f"procedural:dead_leaves,n={IMAGES}", shape=tuple(shape)).pixels()


def passes(d: Detector, x: Images, threat: Threat, method: Method) -> list[float]:
    """Forward passes that bounds of a batch cost, run by run."""
    certifier = Certifier(d, threat, method)
    certifier(x[:1])
    found = []
    for _ in range(RUNS):
        with torch.no_grad():
            d.model(x)
            bare = spent(lambda: d.model(x), PASSES)
        found.append(spent(lambda: certifier(x), 1) / bare)
    return found


def claim(name: str, method: Method) -> Claim:
    """The bar of a network and a method."""
    model, eps = rood.zoo.load(name), NETWORKS[name]
    d: Detector = MSP(model) if model.scalar_head is None else Head(model)
    found = passes(d, images(name), parse(eps), method)
    value, spread = statistics.median(found), max(found) - min(found)
    detail = f"{type(d).__name__} of {name} at {eps}, {IMAGES} images"
    what = f"{method}, forward passes, {name}"
    return Claim(what, value, BARS[method], RUNS, spread, detail)


def main() -> int:
    torch.set_num_threads(1)
    there = [n for n in NETWORKS if n in rood.zoo.names()]
    return report("certifying", [claim(n, m) for n in there for m in BARS])


if __name__ == "__main__":
    sys.exit(main())
