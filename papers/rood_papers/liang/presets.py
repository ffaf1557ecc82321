"""LIANG's attack as written, as coded, and with steps that shrink; the numbers in its text."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from rood.analysis.matching import Matched
from rood.attacks.base import Attack
from rood.attacks.feature_match import FeatureMatch
from rood.metrics import wilson
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import claim
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment, Part
from rood_papers.framework.paper import printed
from rood_papers.liang.figures import CIFAR10, DIGITS, absent
from rood_papers.liang.systems import Case, code_error, direct, matched, ready, scored


def presets(context: Context) -> Iterator[Part]:
    """Three rules for one attack."""
    case = CIFAR10
    try:
        context.network("cifar10/ce")
        context.images("cifar10/test", limit=1)
    except NotRun:
        case = DIGITS
    small = case.world == DIGITS.world  # networks so small need no sparing
    n = 20 if context.size.name == "tiny" and not small else 200
    rules = {
        "paper": FeatureMatch.paper(steps=n),
        "official": FeatureMatch.liang(steps=n),
        "shrinking": FeatureMatch(steps=n),
    }
    for attack, rule in (*rules.items(), ("standard", None)):
        cell = Cell(
            experiment="liang/presets", row="MSP", column=case.world, metric="auroc", attack=attack
        )
        cells = (cell, replace(cell, metric="mape_median")) if rule else (cell,)
        yield Part(attack, cells, partial(_preset, context, case, cells, rule))


def _preset(
    context: Context, case: Case, cells: tuple[Cell, ...], rule: Attack | None
) -> Iterator[Cell]:
    s = ready(context, case)
    found: Matched | None = None if rule is None else matched(context, case, rule)
    after = direct(context, case) if found is None else scored(s.detector, found.images)
    n = len(s.clean_in)
    auroc, m = s.ranked(after, paired=found is not None)
    yield cells[0].found(auroc, n, m, network=s.network)
    if found is not None:
        yield code_error(found, cells[1], s.network)


def _closest(rows: Sequence[Cell]) -> Iterator[Cell]:
    of = {r.attack: r.ours for r in rows if r.metric == "mape_median" and r.ours is not None}
    shown = ", ".join(f"{a} {v:.2g}" for a, v in of.items())
    holds = None if "shrinking" not in of or len(of) < 3 else min(of, key=lambda a: of[a])
    text = "steps that shrink end closest to the code"
    yield claim("liang/presets", text, None if holds is None else holds == "shrinking", shown)


# numbers in the text


def text(context: Context) -> Iterator[Part]:
    """How good the networks are."""
    for place, world, role in (
        ("appendix-c.2", "cifar10", "ce"),
        ("appendix-b.3", "gtsrb", "ce"),
    ):
        known = printed("liang", place, metric="accuracy")
        note = "the paper: above 99 %" if known is None else "another network"
        cell = Cell(
            experiment="liang/text",
            row=role,
            column=world,
            metric="accuracy",
            paper=known,
            note=note,
        )
        yield Part(place, (cell,), partial(_accuracy, context, world, role, cell))
    for what in ("OCT", "COVID-CT"):
        yield from absent("text", what, "accuracy", context)


@torch.no_grad()
def _accuracy(context: Context, world: str, role: str, cell: Cell) -> Iterator[Cell]:
    network = context.network(f"{world}/{role}")
    images = context.images(f"{world}/test", shape=network.shape)
    right = sum(
        int((network.model(x).logits.argmax(dim=1) == y).sum())
        for x, y in images.batches(250, context.device)
    )
    yield cell.found(wilson(right / len(images), len(images)), len(images), network=network.name)


PRESETS = (
    Experiment(
        "liang/presets",
        "the attack as written, as coded, and with steps that shrink",
        "cifar10-ce; or the shipped digits",
        presets,
        _closest,
        on_digits=True,
    ),
    Experiment("liang/text", "accuracies", "cifar10-ce, gtsrb-ce", text),
)
