"""Claim: 10 detectors fit and score for 2.4 forward passes; pytorch-ood 0.4.0 takes about 15.

Every detector of either library fits on the same images and scores the same images, in turns. It
runs where pytorch-ood is: `.venv-peers/bin/python -m benchmarks.beside_pytorch_ood`.
"""

import copy
import statistics
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bare import Normalise, forward
from benchmarks.measure import Claim, Point, of, report, times
from rood.detectors import Detector, fit_all, registry, score_all
from rood.models.backbones import create
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator

MEAN, STD = 0.5, 0.25
BARS = {"fit and score": 2.4, "score": 1.15}

Batches = list[tuple[Tensor, Tensor]]
Job = Callable[[], object]


def ours(model: Model) -> dict[str, Detector]:
    names = ["msp", "max_logit", "energy", "entropy", "gen", "klm"]
    names += ["mahalanobis", "relative_mahalanobis", "knn"]
    made = {name: registry.get(name)(model) for name in names}
    return made | {"vim": registry.get("vim")(model, dimension=model.head.in_features // 2)}


def theirs(model: Model) -> list[Any]:
    from benchmarks.peers.parity import load_peer

    peer, head = load_peer(), model.head
    body = copy.deepcopy(model.net)
    body.head = nn.Identity()
    net, encoder = (
        nn.Sequential(Normalise(model.mean, model.std), n).eval() for n in (model.net, body)
    )
    logits = [peer.MaxSoftmax, peer.MaxLogit, peer.EnergyBased, peer.Entropy, peer.GEN]
    made = [kind(net) for kind in (*logits, peer.KLMatching)]
    made += [kind(encoder) for kind in (peer.Mahalanobis, peer.RMD, peer.KNN)]
    made.append(peer.ViM(encoder, d=head.in_features // 2, w=head.weight, b=head.bias))
    return [d.to("cpu") if hasattr(d, "to") else d for d in made]


def jobs(model: Model, batches: Batches) -> dict[str, dict[str, Job]]:
    own, other = ours(model), theirs(model)

    def fit_theirs() -> None:
        for detector in other:
            detector.fit(batches)

    @torch.no_grad()
    def score_ours() -> None:
        for x, _ in batches:
            score_all(own, x)

    @torch.no_grad()
    def score_theirs() -> None:
        for detector in other:
            for x, _ in batches:
                detector.predict(x)

    return {
        "rood": {"fit": lambda: fit_all(own.values(), batches), "score": score_ours},
        "pytorch-ood": {"fit": fit_theirs, "score": score_theirs},
    }


def claims(images: int = 512, batch: int = 128, depth: int = 40, runs: int = 3) -> list[Claim]:
    net = create("wide_resnet", depth=depth, widen=2, classes=10)
    model = wrap(net, mean=(MEAN,), std=(STD,))
    x = torch.rand(images, 3, 32, 32, generator=generator(0, "benchmark"))
    y = torch.arange(images) % 10
    batches = list(zip(x.split(batch), y.split(batch), strict=True))
    both = jobs(model, batches)
    calls = {f"{library} {job}": both[library][job] for library in both for job in both[library]}
    found = times(calls | {"bare": forward(model, x, batch)}, runs)
    for library in both:
        parts = zip(found[f"{library} fit"], found[f"{library} score"], strict=True)
        found[f"{library} fit and score"] = [sum(p) for p in parts]
    points = tuple(_point(found, library) for library in both)
    detail = f"WRN-{depth}-2, {images} images; pytorch-ood {version('pytorch-ood')}"
    made = []
    for job, bar in BARS.items():
        value, spread = of(found[f"rood {job}"], found["bare"])
        name = f"10 detectors {job} / forward pass"
        made.append(Claim(name, value, bar, runs, spread, detail, points=points))
    return made


def _point(found: dict[str, list[float]], library: str) -> Point:
    row: Point = {"library": library, "seconds_of_a_pass": statistics.median(found["bare"])}
    for job in ("fit", "score", "fit and score"):
        row[job] = round(of(found[f"{library} {job}"], found["bare"])[0], 3)
    return row


if __name__ == "__main__":
    sys.exit(report("beside-pytorch-ood", claims()))
