"""LIANG on what is more than an encoder: Glow, the complexity of images, CCU, an auto-encoder."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from rood.attacks.feature_match import FeatureMatch
from rood.matching import match
from rood.reproduce.experiment import Context, Experiment, Part, Row, claim, printed
from rood.reproduce.liang_systems import Case, direct, first_of, matched, ready, scored
from rood.threat import L2

WORLDS = ("cifar10", "fashion", "mnist", "digits")  # the first with a network is taken
STEPS = 300
LOSS = 0.05  # of an AUROC: what counts as unmoved
ANOTHER = "another network on other images; the paper's is on CelebA"


def _case(context: Context, kind: str, score: str, start: str, code: str = "score") -> Case:
    role = first_of(context, *(f"{w}/{kind}" for w in WORLDS))
    world = role.partition("/")[0]
    return Case(world, (role,), score, code, start, 10.0 if world == "cifar10" else 5.0, 10_000)


def likelihood(context: Context) -> Iterator[Part]:
    """The likelihood of a spiral and a board before and after it takes that of other images."""
    for start in ("spiral", "checkerboard"):
        cell = Row(
            experiment="liang/figure5", row="NLL", column=start, metric="auroc", note=ANOTHER
        )
        before = printed("liang", "section-3.2", outside=start, metric="bits_per_dim")
        cells = (
            replace(cell, metric="bits_per_dim", paper=before),
            cell,
            replace(cell, attack="official"),
            replace(cell, attack="standard"),
        )
        yield Part(start, cells, partial(_hidden, context, "glow", "NLL", start, cells))


def complexity(context: Context) -> Iterator[Part]:
    """The likelihood less what a file format makes of the image."""
    score = "NLL - PNG complexity"
    known = printed("liang", "appendix-i", method=score, metric="auroc")
    cell = Row(
        experiment="liang/figure20", row=score, column="spiral", metric="auroc", note=ANOTHER
    )
    cells = (
        cell,
        replace(cell, attack="official", paper=known),
        replace(cell, attack="standard"),
    )
    yield Part("spiral", cells, partial(_hidden, context, "glow", score, "spiral", cells))


def immune(name: str, kind: str, code: str, context: Context) -> Iterator[Part]:
    """A score that matching does not break, as the paper says, and a direct attack on it."""
    cell = Row(experiment=f"liang/{kind}", row=name, column="spiral", metric="auroc")
    cells = (cell, replace(cell, attack="official"), replace(cell, attack="standard"))
    yield Part(name, cells, partial(_hidden, context, kind, name, "spiral", cells, code))


def _hidden(
    context: Context, kind: str, score: str, start: str, cells: Sequence[Row], code: str = "score"
) -> Iterator[Row]:
    case = _case(context, kind, score, start, code)
    s = ready(context, case)
    n = len(s.clean_in)
    for cell in cells:
        if cell.metric == "bits_per_dim":
            yield cell.found(
                s.clean_out.double().mean().item(), n_out=1 if s.alike else n, network=s.network
            )
            continue
        if cell.attack == "official":
            after = scored(s.detector, matched(context, case).images)
        else:
            after = direct(context, case) if cell.attack == "standard" else s.clean_out
        found, m = s.ranked(after, paired=cell.attack == "official")
        yield cell.found(found, n, m, network=s.network)


def targets(context: Context) -> Iterator[Part]:
    """Any likelihood one likes, for images of a spiral."""
    cell = Row(
        experiment="liang/nll_targets",
        row="NLL",
        column="bits per dimension asked for",
        metric="bits per dimension found",
        attack="official",
        kind="point",
        group="spiral",
    )
    yield Part("spiral", (cell,), partial(_asked, context, cell))


def _asked(context: Context, cell: Row) -> Iterator[Row]:
    case = _case(context, "glow", "NLL", "spiral")
    s = ready(context, case)
    low, high = s.clean_in.min().item(), s.clean_in.max().item()
    room = (high - low) / 2
    wanted = torch.linspace(low - room, high + room, len(s.starts)).to(s.starts)
    attack = FeatureMatch.liang(steps=30 if context.size.name == "tiny" else STEPS)
    goal = match(s.encoder, wanted[:, None])
    found = attack(goal, s.starts, L2(case.eps), context.generator("liang", "targets"))
    for x, y in zip(wanted.tolist(), scored(s.detector, found).tolist(), strict=True):
        yield cell.found(y, x=x, network=s.network, note="dots")


def _unmoved(experiment: str, rows: Sequence[Row]) -> Iterator[Row]:
    of = {r.attack: r.ours for r in rows if r.metric == "auroc" and r.ours is not None}
    shown = ", ".join(f"{attack} {value:.3f}" for attack, value in of.items())
    for attack, text in (
        ("official", "matching a code hides no image"),
        ("standard", "an attack on the score itself hides no image"),
    ):
        known = "clean" in of and attack in of
        yield claim(experiment, text, of[attack] > of["clean"] - LOSS if known else None, shown)


_GLOW = "cifar10-glow, fashion-glow or mnist-glow"
GENERATIVE = (
    Experiment("liang/figure5", "Glow's likelihood", _GLOW, likelihood),
    Experiment("liang/nll_targets", "any likelihood one asks for (figure 6)", _GLOW, targets),
    Experiment("liang/figure20", "likelihood less complexity", _GLOW, complexity),
    Experiment(
        "liang/ccu",
        "the method that the paper could not break",
        "cifar10-ccu, fashion-ccu or mnist-ccu",
        partial(immune, "CCU", "ccu", "logits"),
        partial(_unmoved, "liang/ccu"),
    ),
    Experiment(
        "liang/autoencoder",
        "reconstruction, which a matched code does not give (section 2.4)",
        "cifar10-autoencoder, fashion-autoencoder or mnist-autoencoder",
        partial(immune, "auto-encoder", "autoencoder", "features"),
        partial(_unmoved, "liang/autoencoder"),
    ),
)
