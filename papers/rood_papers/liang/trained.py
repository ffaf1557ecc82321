"""Detectors that train their own networks: matched, attacked, certified, sampled."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from rood.analysis.matching import BATCH, Matched, attack_pairs
from rood.attacks import APGD, PGD, Attack, FeatureMatch, WorstOf
from rood.attacks.worst_of import Tier
from rood.detectors import CCU, Detector
from rood.errors import UnknownNameError
from rood.evaluation.attacked import attacked_scores
from rood.goals import look_in
from rood.metrics import auroc, summary
from rood.models import checkpoint, zoo
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import L2, to_8_bit
from rood.training.objectives.jem import JEM, Replay
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Part
from rood_papers.framework.paper import printed
from rood_papers.liang.figures import picture
from rood_papers.liang.systems import (
    FILE,
    Case,
    Pairs,
    case_of,
    code_error,
    ready,
    scored,
    steps_of,
    test_set,
)
from rood_papers.liang.tables import last_fall, loss_curve

CHANCE = 0.55  # an AUROC up to here is no better than chance
FOUND = 0.01  # a MAPE up to here: the code was found
FLAT = 0.01  # a loss that falls by less in its last fifth is flat
# the steps of `worst_of` grow with the ball, and miss valleys that are narrow
WALK = PGD(steps=100, step=0.3, random_start=False)
CLOSE = 1e-4  # a pixel that is further off after a round trip is counted
ROUND_TRIP = (
    *("median error of a pixel", "largest error of a pixel"),
    *("images off by 1e-4", "images off by half a level", "bits_per_dim"),
)
SIDE = 8  # images in a row of a picture of samples
TEMPERATURE = 0.7  # of Glow's noise, as in its paper
CHAIN = 2000  # steps of JEM's chains: after fewer, most have not left the noise


# the attack on a score itself


def without_limit(x: Images) -> L2:
    """The diagonal of the pixel box: no image is further from another."""
    return L2(math.sqrt(x[0].numel()))


def best_of(detector: Detector, found: Sequence[Images]) -> Images:
    """Of several images for each start, the one with the lowest score."""
    best = torch.stack([scored(detector, x) for x in found]).argmin(dim=0)
    return torch.stack([*found])[best, torch.arange(len(best))]


@torch.no_grad()
def toward(detector: Detector, inside: Images, begin: Images, threat: L2) -> list[Images]:
    """The points of the ball nearest to two ID images, for each start.

    These are its nearest and the one with the lowest score: gradient ascent does not find them
    where ridges are in between.
    """
    nearest = torch.cdist(begin.flatten(1), inside.flatten(1)).argmin(dim=1)
    typical = scored(detector, inside).argmin().to(nearest)
    return [threat.project(inside[i], begin) for i in (nearest, typical.expand_as(nearest))]


def reached(
    detector: Detector,
    inside: Images,
    begin: Images,
    budgets: Sequence[L2],  # from small to large
    known: Sequence[Sequence[Images]],  # images already found within each of them
    attacks: Sequence[Attack],  # an attack without random start begins at the best image so far
) -> Iterator[Images]:
    """The images with the lowest scores within each budget; a larger one keeps what was found."""
    least = scored(detector, inside).min().item()
    goal = look_in(detector, inside, past=least)
    best = begin
    for threat, others in zip(budgets, known, strict=True):
        best = best_of(detector, [best, *others, *toward(detector, inside, begin, threat)])
        for attack in attacks:
            left = (scored(detector, best) >= least).nonzero().squeeze(1).to(best.device)
            for part in left.split(BATCH):
                on = goal.begin(best[part]) if isinstance(attack, PGD) else goal
                found = attack(on, begin[part], threat, generator(0, "direct"))
                best = best.index_copy(0, part, best_of(detector, [best[part], found]))
        yield best


def _suite(context: Context, tier: Tier) -> tuple[Attack, ...]:
    if context.size.name == "tiny":
        return APGD(steps=3), replace(WALK, steps=3)
    return WorstOf(tier=tier), WALK


# the table


def finding(
    *,
    clean: float,
    matched: float,
    direct: float,
    unlimited: float | None,
    mape: float,
    flat: bool,
    n: int,  # ID images
    certified: float | None = None,
) -> tuple[str, str]:
    """Finding for a score and a match, in the words of docs/evidence/trained-systems.md."""
    match = "not found" if mape > FOUND else "matched" if matched <= CHANCE else "in vain"
    if clean <= CHANCE:
        return "blind", match
    if min(direct, matched) <= CHANCE:
        return "broken", match
    if certified is not None and certified > CHANCE:
        return "proven", match
    if not flat:
        return "undone", match
    if unlimited is None:
        return "open", match
    copied = 0.5 / n  # left where every image is a copy of the ID image with the lowest score
    return ("masked?" if unlimited >= copied else "far"), match


def systems(place: str, context: Context) -> Iterator[Part]:
    """One part per system and start; at tiny its first start alone."""
    for group in FILE["experiments"][place]["systems"]:
        for start in group["starts"][: 1 if context.size.name == "tiny" else None]:
            case = _case(context, group, start)
            lines = product(group["balls"], group["codes"], group["scores"])
            cells = {line: _printed(place, group, case, *line) for line in lines}
            name = f"{_label(case)} from {start}: {', '.join(group['scores'])}"
            yield Part(name, tuple(cells.values()), partial(_measured, context, group, case, cells))


def _case(context: Context, group: Mapping[str, Any], start: str = "noise") -> Case:
    """At tiny that of the shipped digits, where there is one.

    Of a world with images apart, such as fashion/apart/fit and /test, none is fitted and attacked.
    """
    network = group["network"].split(" | ")
    own = {"network": network[-1] if context.size.name == "tiny" else " | ".join(network)}
    own |= {"score": group["scores"][0], "code": group.get("codes", ["score"])[0], "start": start}
    steps = group.get("steps", 1000)
    case = case_of(context, own | {"steps": steps, "most": steps})
    apart = f"{case.world}/apart"
    return replace(case, world=apart) if context.has(f"{apart}/test") else case


def _others(case: Case, about: Mapping[str, Any]) -> list[str]:
    """The OOD sets that stand beside the case's ID images."""
    names: list[str] = about["outside"][case.world.partition("/")[0]]
    return names


def _label(case: Case) -> str:
    several = f" to {len(case.roles) - 1}" if len(case.roles) > 1 else ""
    return case.roles[0].replace("/", "-") + several


def _printed(
    place: str, group: Mapping[str, Any], case: Case, share: float, code: str, score: str
) -> Cell:
    """The cell of a match, with the paper's number in the paper's ball."""
    facts = {"method": score, "target": code, "outside": case.start, "inside": "cifar10"}
    known = "printed" in group and share == 1
    paper = printed("liang", metric="auroc", **facts | group["printed"]) if known else None
    column = f"{_label(case)} from {case.start}, {code} within {share * case.eps:g}"
    return Cell(f"liang/{place}", score, column, "auroc", attack="matched", paper=paper)


Key = tuple[float, str, str]  # share of the paper's distance, code, score


def _measured(
    context: Context, group: Mapping[str, Any], case: Case, cells: Mapping[Key, Cell]
) -> Iterator[Cell]:
    if context.size.name == "tiny" and case.world != "digits":
        raise NotRun("at tiny only networks of the shipped digits are attacked")
    of = {score: ready(context, replace(case, score=score)) for score in group["scores"]}
    codes = {code: ready(context, replace(case, code=code)).encoder for code in group["codes"]}
    inside, begin = of[case.score].inside, whole(of[case.score].outside)
    rule = FeatureMatch(steps=steps_of(context, case))
    balls = {share: L2(share * case.eps) for share in group["balls"]}
    pairs = {
        (code, share): attack_pairs(encoder, inside, begin, rule, ball, seed=context.seed)
        for share, ball in balls.items()
        for code, encoder in codes.items()
    }
    known = [[pairs[code, share].images for code in codes] for share in balls]
    direct = _searched(context, group, of, begin, [*balls.values()], [*known, []])
    for (share, code, score), cell in cells.items():
        match = pairs[code, share]
        found = {"clean": begin, "matched": match.images}
        if score in direct:
            found |= {"direct": direct[score][share], "unlimited": direct[score][math.inf]}
        yield from _line(of[score], balls[share], match, found, cell)
        if score == case.score:  # the curve is that of the code, which all scores share
            yield from loss_curve(match, cell, f"{score}, {cell.column}")


def _searched(
    context: Context,
    group: Mapping[str, Any],
    of: Mapping[str, Pairs],
    begin: Images,
    balls: list[L2],
    known: list[list[Images]],
) -> dict[str, dict[float, Images]]:
    """What the attack on each score finds in each ball, and without a limit at `inf`."""
    budgets, attacks = [*balls, without_limit(begin)], _suite(context, group.get("tier", "quick"))
    direct = {}
    for score, s in of.items() if group.get("direct", True) else ():
        best = list(reached(s.detector, s.inside, begin, budgets, known, attacks))
        direct[score] = dict(zip([*group["balls"], math.inf], best, strict=True))
        # what lowers one score may lower another
        known = [[*others, x] for others, x in zip(known, best, strict=True)]
    return direct


def whole(x: Images) -> Images:
    """On the levels of 8 bits."""
    return (255 * x).round() / 255


def _line(
    s: Pairs, ball: L2, match: Matched, found: Mapping[str, Images], cell: Cell
) -> Iterator[Cell]:
    """The numbers of one score, code and ball; `found` has the images by attack."""
    bare, n = replace(cell, paper=None), len(s.inside)
    cells = {attack: _ranked(s, x, replace(bare, attack=attack)) for attack, x in found.items()}
    cells["matched"] = replace(cells["matched"], paper=cell.paper)
    bound, fall = certified_auroc(s, found["clean"], ball), last_fall(match)
    if bound is not None:
        proven = replace(bare, attack="certified")
        cells["certified"] = proven.found(bound, n, n, network=s.network)
    if "direct" in found:
        values: dict[str, Any] = {attack: c.ours for attack, c in cells.items()}
        error = float(np.median(match.mape))
        words = finding(**values, mape=error, flat=fall.value <= FLAT, n=n)
        cells["direct"] = replace(cells["direct"], note=", ".join(words))
    yield from cells.values()
    for attack in [a for a in ("matched", "direct") if a in found]:
        rounded = to_8_bit(found[attack], found["clean"], ball)
        yield _ranked(s, rounded, replace(bare, attack=attack, metric="auroc_8_bit"))
    yield code_error(match, replace(bare, metric="mape_median"), s.network)
    yield replace(bare, metric="last_fall").found(fall, n, n, network=s.network)


def _ranked(s: Pairs, x: Images, cell: Cell) -> Cell:
    value, m = s.ranked(scored(s.detector, x), paired=cell.attack != "clean")
    return cell.found(value, len(s.clean_in), m, network=s.network)


# CCU and its certificate


@torch.no_grad()
def certified_auroc(s: Pairs, x: Images, ball: L2) -> float | None:
    """The AUROC below which no attack in the ball can bring the score, where that is proven."""
    if not isinstance(s.detector, CCU):
        return None
    least = s.detector.least_score(x, s.detector.radius(ball))
    return auroc(inside=s.clean_in.double(), outside=least.cpu())


def certificate(place: str, context: Context) -> Iterator[Part]:
    """CCU on real OOD images and on noise: clean, attacked, and what its certificate proves."""
    about = FILE["experiments"][place]
    case = _case(context, about)
    for name in ("noise", *_others(case, about)):
        columns = [f"{_label(case)} beside {name} within {eps:g}" for eps in about["eps"]]
        of = f"liang/{place}", case.score
        cells = [Cell(*of, column, "auroc", attack="direct") for column in columns]
        bounded = partial(_bounded, context, replace(case, start=name), about["eps"], cells)
        yield Part(name, cells, bounded)


def _bounded(
    context: Context, case: Case, radii: Sequence[float], cells: Sequence[Cell]
) -> Iterator[Cell]:
    s = ready(context, case)
    assert isinstance(s.detector, CCU)
    n, suite = len(s.outside), _suite(context, "standard")[0]
    for eps, cell in zip(radii, cells, strict=True):
        with torch.no_grad():
            least = s.detector.least_score(s.outside, s.detector.radius(L2(eps))).cpu()
        found = attacked_scores(
            s.detector, s.outside, "outside", L2(eps), suite, exemplars=s.inside
        )
        got = found.scores.cpu().double()
        for attack, scores in (("clean", s.clean_out), ("direct", got), ("certified", least)):
            value = summary(s.clean_in.double(), scores, resamples=1)["auroc"]
            here = replace(cell, attack=attack)
            yield here.found(value, len(s.clean_in), n, network=s.network)
            sure = s.detector.confidence(scores).mean().item()
            yield replace(here, metric="mean confidence").found(sure, 0, n, network=s.network)
        beyond = int((got < least - 1e-3 * (1 + least.abs())).sum())
        yield replace(cell, metric="images beyond the certificate").found(beyond, 0, n)


# flows and auto-encoders


def other_images(place: str, context: Context) -> Iterator[Part]:
    """How well scores detect images of another kind, unattacked."""
    about = FILE["experiments"][place]
    for group in about["systems"]:
        for score in group["scores"]:
            case = _case(context, group | {"scores": [score]})
            columns = [f"{_label(case)} beside {name}" for name in _others(case, about)]
            cells = [Cell(f"liang/{place}", score, column, "auroc") for column in columns]
            yield Part(score, cells, partial(_told, context, case, _others(case, about), cells))


def _told(
    context: Context, case: Case, outside: Sequence[str], cells: Sequence[Cell]
) -> Iterator[Cell]:
    s, shape = ready(context, case), context.network(case.roles[0]).shape
    own = scored(s.detector, context.pixels(test_set(context, case.world), shape=shape))
    for name, cell in zip(outside, cells, strict=True):
        other = scored(s.detector, context.pixels(name, shape=shape))
        value = summary(own, other, resamples=1)["auroc"]
        note = f"mean score {own.mean():.4g} inside, {other.mean():.4g} outside"
        yield cell.found(value, len(own), len(other), network=s.network, note=note)


def round_trip(place: str, context: Context) -> Iterator[Part]:
    """From image to code and back: how far the worst pixel of an image is off."""
    case = _case(context, FILE["experiments"][place])
    columns = product(("float32", "float64"), ROUND_TRIP)
    cells = [Cell(f"liang/{place}", _label(case), c, metric) for c, metric in columns]
    yield Part(_label(case), cells, partial(_undone, context, case, cells))


@torch.no_grad()
def _undone(context: Context, case: Case, cells: Sequence[Cell]) -> Iterator[Cell]:
    network = context.network(case.roles[0])
    x = context.pixels(test_set(context, case.world), shape=network.shape)
    levels = (255 * x.double()).round() / 255  # float32 pixels are not exact levels
    exact = copy.deepcopy(network.model).double()
    values: list[float] = []
    for model, pixels in ((network.model, x), (exact, levels)):
        net, off, bits = GlowNetwork.of(model), [], []
        for part, level in zip(pixels.split(BATCH), levels.split(BATCH), strict=True):
            seen = net.look(part)
            off.append((net.decode(seen.z, network.shape[1:]) - level).abs().flatten(1).amax(dim=1))
            bits.append(seen.nll)
        worst = torch.cat(off)
        values += [worst.median().item(), worst.max().item()]
        values += [float((worst > limit).sum()) for limit in (CLOSE, 0.5 / 255)]
        values += [torch.cat(bits).mean().item()]
    for cell, value in zip(cells, values, strict=True):
        yield cell.found(value, len(x), network=network.name)


# samples


def samples(place: str, context: Context) -> Iterator[Part]:
    """Pictures of samples from flows and JEM."""
    for group in FILE["experiments"][place]["systems"]:
        case = _case(context, group)
        cell = Cell(f"liang/{place}", _label(case), group["about"], "picture", kind="image")
        yield Part(_label(case), (cell,), partial(_sampled, context, case, cell))


def _sampled(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    network = context.network(case.roles[0])
    if case.score == "NLL":
        source, net = generator(0, "samples"), GlowNetwork.of(network.model)
        drawn = net.samples(SIDE**2, network.shape[1:], source, TEMPERATURE)
    else:
        steps = 20 if context.size.name == "tiny" else CHAIN
        drawn = chains(network.model, network.shape, rule_of(_card(context, network.name)), steps)
    kind = case.roles[0].partition("/")[2]
    file = picture(context.out, f"samples-{kind}", drawn.split(SIDE), gap=0)
    yield replace(cell, file=file, network=network.name, n_out=len(drawn))


def chains(model: Model, shape: tuple[int, int, int], rule: JEM, steps: int) -> Images:
    """JEM's chains from even noise, as those of its training begin, none of them begun anew."""
    device = model.mean.device
    noise = torch.rand(SIDE**2, *shape, generator=generator(0, "samples")).to(device)
    replay, source = Replay(noise), torch.Generator(device).manual_seed(0)
    for _ in range(steps // rule.steps):
        replace(rule, fresh=0.0).sample(model, replay, len(noise), source)
    return replay.chains


def rule_of(card: Mapping[str, Any]) -> JEM:
    """How the network's own training drew its samples."""
    training = card["training"]["objective"]
    return JEM(**{f.name: training[f.name] for f in fields(JEM) if f.name in training})


def _card(context: Context, name: str) -> dict[str, Any]:
    try:
        return zoo.card(name)
    except UnknownNameError:
        if context.zoo is None:
            raise NotRun(f"no card of {name}") from None
        return checkpoint.read_card(context.zoo / f"{name}.safetensors")
