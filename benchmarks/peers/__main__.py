"""`make peers`: every detector that rood and pytorch-ood both have, on the same images."""

import copy
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from itertools import chain, cycle, pairwise
from pathlib import Path
from typing import Any

import sklearn
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.measure import conditions
from benchmarks.peers import parity
from benchmarks.peers.parity import Images, Pair, Score
from rood import data, detectors
from rood.models import zoo
from rood.numerics.softmax import margin

NETWORK = "digits-ce"
SETS = {"digits:near": 400, "digits:patches": 200, "digits:noise": 200}
PACKS = {"fashion_mnist_test": 250, "notmnist_small": 250}  # where ROOD_DATA has them

peer = parity.load_peer()


class World:
    """The network as either library wants it, and the images to fit and to score."""

    def __init__(self) -> None:
        parts = data.split(data.load("digits:inside"), fit=0.6, calibrate=0.1, test=0.3)
        self.fit, self.calibrate = (list(parts[p].batches(256)) for p in ("fit", "calibrate"))
        specs = dict(SETS)
        if folder := os.environ.get("ROOD_DATA"):
            specs |= {f"npz:{Path(folder) / name}.npz": n for name, n in PACKS.items()}
        out = [data.load(s, limit=n, shape=parts["test"].shape) for s, n in specs.items()]
        sets = [parts["test"], *out]
        self.sets = {s.name: len(s) for s in sets}
        self.images = Images(torch.cat([s.pixels() for s in sets]), len(parts["test"]))
        self.model = zoo.load(NETWORK)
        self.net = parity.plain(self.model)
        self.encoder, self.head = self.net[:-1], self.net[-1]

    def ours(self, name: str, **options: Any) -> Any:
        return detectors.registry.get(name)(self.model, **options).fit(self.fit)

    def cut(self, *layers: int) -> list[nn.Module]:
        """The network in pieces, each but the last ending behind `layers.i` of rood's."""
        ends = [0, *(i + 2 for i in layers), len(self.net)]
        return [self.net[a:b] for a, b in pairwise(ends)]


def logit_pairs(w: World) -> Iterator[Pair]:
    def pair(name: str, other: Any, options: dict[str, Any], **more: Any) -> Pair:
        if more.pop("fine", False):
            more["fine"] = lambda x: other.predict_logits(w.net(x).double())
        ours = w.ours(name, **options)
        return Pair(name, type(other).__name__, ours.score, other.predict, options, **more)

    ties = (
        "our margin ranks as the probability does but never rounds to 1; theirs does in float32, "
        "so it is asked with float64 logits."
    )
    yield pair("msp", peer.MaxSoftmax(w.net), {}, fine=True, reason=ties)
    yield pair("msp", peer.MaxSoftmax(w.net, t=10), {"temperature": 10.0})
    yield temperature(w)
    yield pair(
        "entropy",
        peer.Entropy(w.net),
        {},
        adapted=lambda x: floored(w, x, lambda p: -(p * p.log()).sum(dim=1)),
        reason="they raise every probability to at least 1e-7, which moves confident images.",
    )
    yield pair("energy", peer.EnergyBased(w.net), {})
    yield pair("energy", peer.EnergyBased(w.net, t=10), {"temperature": 10.0})
    yield pair("max_logit", peer.MaxLogit(w.net), {})
    for top in (100, 3):
        yield pair(
            "gen",
            peer.GEN(w.net, gamma=0.1, M=top),
            {"gamma": 0.1, "top": top},
            adapted=lambda x, top=top: floored(w, x, lambda p: generalised(p, top), 1 - 1e-7),
            reason="they hold every probability between 1e-7 and 1 - 1e-7.",
        )
    yield pair("klm", peer.KLMatching(w.net).fit(w.fit), {})
    yield openmax(w)


def generalised(p: Tensor, top: int) -> Tensor:
    p = p.sort(dim=1, descending=True).values[:, :top]
    return ((p * (1 - p)) ** 0.1).sum(dim=1)


def floored(w: World, x: Tensor, score: Score, top: float = 1.0) -> Tensor:
    return score(w.model(x).logits.double().softmax(dim=1).clamp(1e-7, top))


def temperature(w: World) -> Pair:
    ours = w.ours("temperature_scaling").fit(w.calibrate)
    other = peer.TemperatureScaling(w.net).fit(w.calibrate)
    theirs = other.t.item()
    return Pair(
        "temperature_scaling",
        "TemperatureScaling",
        ours.score,
        other.predict,
        {},
        adapted=lambda x: margin(w.model(x).logits.double(), theirs),
        reason=f"their 50 steps of L-BFGS end at T = {theirs:.3f}, ours has the least loss, at "
        f"T = {ours.temperature_.item():.3f}.",
    )


def fitted(w: World, name: str, other: Any, options: dict[str, Any], **more: Any) -> Pair:
    ours, predict = w.ours(name, **options).score, other.fit(w.fit).predict
    return Pair(name, type(other).__name__, ours, predict, options, **more)


def feature_pairs(w: World) -> Iterator[Pair]:
    pair = partial(fitted, w)
    for t in (1.0, 0.1):
        other = peer.MCM(w.encoder, w.head.weight.detach(), temperature=t)
        yield Pair(
            "mcm", "MCM", w.ours("mcm", temperature=t).score, other.predict, {"temperature": t}
        )
    ridge = w.ours("mahalanobis").ridge_.item()
    yield pair(
        "mahalanobis",
        peer.Mahalanobis(w.encoder),
        {},
        reason="they do not divide the scatter by the number of images, which changes no rank, and "
        "add 1e-6 to its diagonal (in RMD and MultiMahalanobis too); we add a share of its mean, "
        f"and only where the matrix is singular. Here the share was {ridge:g}.",
    )
    yield pair("relative_mahalanobis", peer.RMD(w.encoder), {})
    one = peer.MahalanobisODIN(w.encoder, eps=0.002)
    yield pair("layered_mahalanobis", one, {"layers": ("layers.12",), "eta": 0.002})
    many = peer.MultiMahalanobis(w.cut(2, 5, 9)[:-1])
    yield pair("layered_mahalanobis", many, {"layers": ("layers.2", "layers.5", "layers.9")})
    yield pair("knn", peer.KNN(w.encoder, k=50), {"k": 50})
    weight, bias = w.model.head.weight, w.model.head.bias
    yield pair("vim", peer.ViM(w.encoder, d=32, w=weight, b=bias), {"dimension": 32})
    yield pair("dice", peer.DICE(w.encoder, weight, bias, p=0.9), {"percentile": 90.0})
    yield pair("she", peer.SHE(w.encoder, w.head), {})
    last = f"{len(w.net) - 1}.weight"
    yield pair("gradnorm", peer.GradNorm(w.net, param_filter=lambda n: n == last), {})
    odin = peer.ODIN(w.net, eps=0.0014, temperature=1000.0)
    yield pair("odin", odin, {"eta": 0.0014, "temperature": 1000.0})
    yield pair("fdbd", peer.fDBD(w.encoder, w.head), {})
    for alpha in (1e-4, 0.1):
        yield pair("nci", peer.NCI(w.encoder, w.head, alpha=alpha), {"alpha": alpha})
    for k in (10, 100):
        yield pair("nnguide", peer.NNGuide(w.encoder, w.head, k=k), {"k": k})


class Unit(nn.Module):
    """Features divided by their length."""

    def forward(self, f: Tensor) -> Tensor:
        return normalize(f, dim=1)


class Masks(nn.Module):
    """In place of a dropout layer: the n-th call drops what the n-th mask drops."""

    def __init__(self, masks: Tensor) -> None:
        super().__init__()
        self.next = cycle(masks)

    def forward(self, f: Tensor) -> Tensor:
        return f * next(self.next)


def own_parts_pairs(w: World) -> Iterator[Pair]:
    """Theirs with a part that they leave to the user."""
    yield fitted(
        w,
        "mahalanobis_plus_plus",
        peer.Mahalanobis(nn.Sequential(w.encoder, Unit())),
        {},
        reason="they have no such detector: theirs is Mahalanobis behind a network that ends in "
        "the normalisation.",
    )
    ours = w.ours("mc_dropout")
    dropped = nn.Sequential(w.encoder, Masks(ours.masks_), w.head).eval()
    yield Pair(
        "mc_dropout",
        "MCD",
        ours.score,
        peer.MCD(dropped, samples=ours.draws, mode="mean").predict,
        {"draws": ours.draws, "rate": ours.rate},
        reason="they draw masks anew in every call; here their dropout layer is given ours.",
    )


def shaping_pairs(w: World) -> Iterator[Pair]:
    pair, (backbone, head) = partial(fitted, w), as_maps(w)
    yield pair("react", peer.ReAct(backbone, head, percentile=0.9), {"percentile": 90.0})
    for kind in "bps":
        for p in (65, 90):
            other = peer.ASH(backbone, head, variant=f"ash-{kind}", percentile=p / 100)
            more = ties_in_ash_b(w, p) if (kind, p) == ("b", 65) else {}
            yield pair(f"ash_{kind}", other, {"percentile": float(p)}, **more)
    yield pair("scale", peer.SCALE(backbone, head, percentile=0.85), {"percentile": 85.0})
    yield vra(w)


def vra(w: World) -> Pair:
    other = peer.VRA(*as_maps(w), lower_percentile=0.6, upper_percentile=0.95).fit(w.fit)
    features = torch.cat([w.model(x).features for x, _ in w.fit]).detach().double()
    low, high = (features.quantile(q, dim=0) for q in (0.6, 0.95))
    clamped = lambda x: w.model(x).features.clamp(low, high).float()
    return Pair(
        "vra",
        "VRA",
        w.ours("vra").score,
        other.predict,
        {"low": 60.0, "high": 95.0},
        same=False,
        adapted=lambda x: -w.model.head(clamped(x)).logsumexp(dim=1),
        reason="ours sets small features to 0, as the paper does, theirs to the lower bound; ours "
        "has one pair of bounds, the percentiles of all features, theirs one for each feature.",
    )


def as_maps(w: World) -> tuple[nn.Module, nn.Module]:
    """The features as maps of one place, which they want, and the head behind them."""
    backbone = nn.Sequential(w.encoder, nn.Unflatten(1, (-1, 1, 1)))
    return backbone, nn.Sequential(nn.Flatten(), w.head)


def ties_in_ash_b(w: World, percentile: int) -> dict[str, Any]:
    def adapted(x: Tensor) -> Tensor:
        f = w.model(x).features
        k = f.shape[1] - round(f.shape[1] * percentile / 100)
        fill = (f.sum(dim=1, keepdim=True) / k).expand(-1, k)
        shaped = torch.zeros_like(f).scatter(1, f.topk(k).indices, fill)
        return -w.model.head(shaped).logsumexp(dim=1)

    reason = "where fewer features are active than are kept, zeros are filled; ours takes those "
    return {"adapted": adapted, "reason": reason + "of lower index, theirs what torch.topk gives."}


def map_pairs(w: World) -> Iterator[Pair]:
    for i in (5, 9):
        options = {"layers": (f"layers.{i}",)}
        ours, other = w.ours("rankfeat", **options), peer.RankFeat(*w.cut(i))
        yield Pair("rankfeat", "RankFeat", ours.score, other.predict, options)
    yield Pair(
        "rankfeat",
        "RankFeat",
        w.ours("rankfeat").score,
        other.predict,
        {"layers": "the last two stages, theirs only the last"},
        same=False,
        adapted=ours.score,
        reason="by default ours averages the logits of two stages, as the paper does; theirs "
        "treats one. Checked with ours at their stage.",
    )
    yield gram(w)
    yield nac(w)


def gram(w: World) -> Pair:
    """Their bounds are drawn at random and by label: the check takes them over into ours."""
    ours, adapted = (w.ours("gram", orders=5) for _ in range(2))
    *layers, head = w.cut(*(int(name.removeprefix("layers.")) for name in ours.taps))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = peer.Gram(head, layers, w.model.classes, num_poles_list=list(range(1, 6)))
        other.fit(w.fit)
    flat = lambda bounds: torch.cat([b for layer in bounds for b in layer], dim=1).double()
    sizes = torch.tensor([sum(b.shape[1] for b in layer) for layer in other.feature_min])
    weight = (1 / other.layer_norm.double()).repeat_interleave(sizes)
    low, high = flat(other.feature_min), flat(other.feature_max)
    adapted.load_fitted({"low_": low, "high_": high, "weight_": weight})
    top = lambda x: w.model(x).logits.double().softmax(dim=1).amax(dim=1)
    return Pair(
        "gram",
        "Gram",
        ours.score,
        other.predict,
        {"layers": "every convolution and ReLU", "orders": 5},
        same=False,
        adapted=lambda x: adapted.score(x) * top(x),
        reason="they take a class's range over images labelled so, we over images predicted so; "
        "they hold out a random tenth, we one chosen by content; we divide by the largest "
        "probability, they do not. Checked with their ranges and scales in our score, and without "
        "that division.",
    )


def openmax(w: World) -> Pair:
    """Their centres and tails have another definition: the check takes them over into ours."""
    ours, adapted = (w.ours("openmax") for _ in range(2))
    other = peer.OpenMax(w.net, tailsize=ours.tail, alpha=ours.top).fit(w.fit)
    found = other._openmax
    tails = [found.distributions[c] for c in range(w.model.classes)]
    state = {
        "means_": [found.centers[c].tolist() for c in range(w.model.classes)],
        "start_": [t.min_val - t.translation + 1 for t in tails],
        "shape_": [t.c for t in tails],
        "scale_": [t.scale for t in tails],
    }
    adapted.load_fitted({k: torch.tensor(v, dtype=torch.float64) for k, v in state.items()})
    beside = w.calibrate[0][0]
    return Pair(
        "openmax",
        "OpenMax",
        ours.score,
        lambda x: other.predict(torch.cat([beside, x]))[len(beside) :],
        {"top": ours.top, "tail": ours.tail},
        same=False,
        adapted=adapted.score,
        reason="ours takes a class's mean and tail over its correctly classified training images, "
        "as the paper does, theirs over all; before the Weibull fit ours moves the start of the "
        "tail to 1, theirs to 10000, as libMR does. Theirs takes the distance to a class for 0 "
        "where no image of the batch is predicted so: here it scores every batch beside images of "
        "all classes. Checked with their means and distributions in our score.",
    )


def nac(w: World) -> Pair:
    ours, adapted = (w.ours("nac") for _ in range(2))
    images = sum(len(y) for _, y in w.fit)
    count = round(ours.least * images)
    adapted.least = count / images
    adapted._bin = lambda v: geometric_bins(torch.sigmoid(adapted.alpha * v).float(), adapted.bins)
    adapted.fit(w.fit)
    free = copy.deepcopy(w.net).requires_grad_()  # theirs differentiates with respect to a layer
    other = peer.NACUE(free, [free[-2]], m_bins=ours.bins, alpha=ours.alpha, o_star=count)
    return Pair(
        "nac",
        "NACUE",
        ours.score,
        other.fit(w.fit).predict,
        {"layers": "the features", "alpha": ours.alpha, "bins": ours.bins, "least": ours.least},
        same=False,
        adapted=adapted.score,
        reason="ours has bins of equal width, as the paper does, theirs are narrower towards 0 and "
        f"1; theirs takes `least` as a whole number of images, here {count}. Checked with bins in "
        "float32, where rounding decides on which side of a bound the 0.5 of silent neurons falls.",
    )


def geometric_bins(t: Tensor, bins: int) -> Tensor:
    """Half of the bins, each a constant factor wider than the last, from 1e-6 to 0.5; mirrored."""
    low = torch.logspace(-6, math.log10(0.5), bins // 2 + 1, dtype=t.dtype)
    edges = torch.cat([low, 1 - low.flip(0)[1:]])
    return (torch.bucketize(t.clamp(1e-6, 1 - 1e-6), edges) - 1).clamp(0, bins - 1)


def only_theirs(w: World) -> Iterator[tuple[str, Score]]:
    """What rood does not have, fitted, to ask for its gradient."""
    found = [
        peer.GMM(w.encoder),
        peer.GradUncertainty(w.net),
        peer.LTS(w.encoder, w.head),
        peer.PNML(w.encoder, w.head),
        peer.WeightedEBO(w.net, torch.ones(w.model.classes)),
    ]
    for other in found:
        yield type(other).__name__, other.fit(w.fit).predict


def about(w: World, rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    compared = {r["detector"] for r in rows}
    return {
        "network": NETWORK,
        "classes": w.model.classes,
        "sets": w.sets,
        "images": len(w.images.pixels),
        "fitted_on": sum(len(y) for _, y in w.fit),
        "calibrated_on": sum(len(y) for _, y in w.calibrate),
        "only_ours": [n for n in detectors.registry.names() if n not in compared],
        "seconds": round(seconds),
        "pytorch_ood": version("pytorch-ood"),
        "scikit_learn": sklearn.__version__,
        **conditions(),
    }


def main() -> int:
    start = time.perf_counter()
    w = World()
    rows = []
    parts = (logit_pairs, feature_pairs, own_parts_pairs, shaping_pairs, map_pairs)
    for pair in chain.from_iterable(part(w) for part in parts):
        rows.append(parity.compare(pair, w.images))
        value = rows[-1]["spearman"]
        print(f"{pair.detector:22s} {pair.theirs:20s} {value:.4f}  {dict(pair.options)}")
    others = [parity.alone(name, score, w.images) for name, score in only_theirs(w)]
    classes = {n for n in peer.__all__ if isinstance(getattr(peer, n), type)}
    missing = classes - {r["theirs"] for r in (*rows, *others)}
    run = {"run": about(w, rows, time.perf_counter() - start)}
    lines = [json.dumps(r, ensure_ascii=False) for r in (run, *rows, *others)]
    parity.ROWS.write_text("\n".join(lines) + "\n")
    parity.PAGE.write_text(parity.page())
    wrong = [
        *parity.short(rows),
        *(f"{n} of theirs is neither compared nor named" for n in missing),
    ]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
