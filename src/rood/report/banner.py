"""The banner on top of the page: why its numbers cannot be trusted. Nothing else decides it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rood.evaluation.store import Contents
from rood.report.numbers import Numbers
from rood.report.outcomes import Outcome, all_outcomes
from rood.report.tables import many, part, unfinished
from rood.report.words import count, listed, percent, shown

NEAR = 0.1  # of the way from chance to perfect accuracy: what still counts as near chance
TINY = 30  # images of a side below which no number of the page is worth much
SAME = 0.5  # share of an OOD set that may be ID images too
MOST = 0.5  # share of attacked numbers that may be not to be believed
OVERLAP = re.compile(r"(\d+) of (\d+) images (?:are|look the same as) .*in-distribution images too")


@dataclass(frozen=True)
class Doubt:
    """One reason, and what to do about it."""

    title: str
    text: str
    advice: str


def doubts(folder: Contents, numbers: Numbers) -> list[Doubt]:
    """Every reason not to trust the page; none where nothing is wrong."""
    manifest = folder.manifest or {}
    return [
        *_unfinished(folder, numbers),
        *(near := list(_near_chance(numbers, manifest))),
        *_same_data(manifest),
        *_failed_checks(manifest, {"accurate"} if near else set()),
        *_tiny(numbers),
        *_unbelieved(all_outcomes(numbers)),
    ]


def _unfinished(folder: Contents, numbers: Numbers) -> Iterator[Doubt]:
    if lacking := unfinished(folder, numbers):
        text = f"{lacking[0].upper()}{lacking[1:]}. This page shows what there is so far."
        advice = "Run the same command again: it continues where it stopped."
        yield Doubt("This audit is unfinished", text, advice)


def _near_chance(numbers: Numbers, manifest: Mapping[str, Any]) -> Iterator[Doubt]:
    for model in numbers.models:
        row = numbers.accuracy(model)
        classes = part(part(manifest, "models"), model).get("classes")
        if row is None or not isinstance(classes, int) or classes < 2:
            continue
        chance = 1 / classes
        if row.value <= chance + NEAR * (1 - chance):
            yield Doubt(
                f"{shown(model)} guesses",
                f"Its accuracy on {count(row.n_in, 'ID image')} is {percent(row.value)}; guessing "
                f"one of {classes} classes gives {percent(chance)}.",
                "Check mean and std, the order of the class folders, and that these are images of "
                "the network's classes.",
            )


def _same_data(manifest: Mapping[str, Any]) -> Iterator[Doubt]:
    data = part(manifest, "data")
    inside = part(data, "inside").get("fingerprint")
    for name in data:
        facts = part(data, name)
        if facts.get("role") != "outside":
            continue
        if inside is not None and facts.get("fingerprint") == inside:
            text = f"{shown(name)} holds the very images that serve as ID images."
        elif overlap := _overlap(facts):
            text = f"{overlap[0]} of {overlap[1]} images of {shown(name)} are ID images too."
        else:
            continue
        advice = "Give other images as OOD: of things that the network was not trained on."
        yield Doubt("The same images are on both sides", text, advice)


def _overlap(facts: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many of how many images a note calls ID images, where these are too many."""
    for note in many(facts, "notes"):
        if found := OVERLAP.match(str(note)):
            same, of = int(found[1]), int(found[2])
            if same > SAME * of:
                return same, of
    return None


def _failed_checks(manifest: Mapping[str, Any], said: set[str]) -> Iterator[Doubt]:
    """Checks of the setup that failed before an audit that went on anyway."""
    for one in many(manifest, "diagnosis"):
        if (
            isinstance(one, Mapping)
            and one.get("status") == "fail"
            and one.get("check") not in said
        ):
            check = shown(str(one.get("check", "")).replace("_", " "))
            about = f"{shown(one['about'])}: " if one.get("about") else ""
            advice = shown(one.get("do", ""), 400)
            yield Doubt(
                f"The setup failed the check “{check}”",
                f"{about}{shown(one.get('found', ''), 400)}.",
                f"{advice[:1].upper()}{advice[1:]}",
            )


def _tiny(numbers: Numbers) -> Iterator[Doubt]:
    rows = [r for r in numbers.rows if r.metric == "auroc" and r.n_in > 0 and r.n_out > 0]
    sizes = {"ID": min((r.n_in for r in rows), default=TINY)}
    sizes["OOD"] = min((r.n_out for r in rows), default=TINY)
    small = [f"{count(n, 'image')} on the {side} side" for side, n in sizes.items() if n < TINY]
    if small:
        yield Doubt(
            "The samples are tiny",
            f"There are only {listed(small)}: the intervals are too wide to compare anything.",
            "Give more images, or raise --limit: 100 per set are enough for a first look.",
        )


def _unbelieved(found: list[Outcome]) -> Iterator[Doubt]:
    doubtful = sum(o.kind == "unbelieved" for o in found)
    if doubtful > MOST * len(found):
        yield Doubt(
            "Most attacks failed their own checks",
            f"{doubtful} of {len(found)} attacked numbers are not to be believed: better attacks "
            "may lower them.",
            "Attack again with --tier standard; “Can the attacks be believed?” below says why.",
        )
