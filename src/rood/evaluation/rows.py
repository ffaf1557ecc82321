"""From scores to rows: pure functions, so that rows can be made again from what is on disk."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rood import metrics
from rood.evaluation import checks
from rood.evaluation.checks import Case, Flag
from rood.evaluation.checks.base import Arrays as Known
from rood.evaluation.checks.base import Side, Verdict

Arrays = dict[str, NDArray[Any]]

CLEAN = "clean"
OPEN_SET = "open_set"  # the name of the OOD set of the classes held out
CORRUPTED = "inside under "  # begins the name of the ID images under a corruption
CERTIFIED = "certified_"  # begins the name of a metric that no attack gets past
CLASSES = "classes"  # in place of a detector: what is known of the network itself
SIDES: tuple[Side, ...] = ("outside", "inside", "both")
SMALL = 100  # images of a set below which a number says that its sample is small


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number and everything needed to read it."""

    model: str
    detector: str  # "" where the number is the model's own (accuracy)
    dataset: str  # the OOD set; "inside" for accuracy and threshold
    scenario: str  # "clean", or attack (or method of a certificate) and threat: "pgd linf:0.1"
    side: Side  # which side was attacked
    # a name of rood.metrics, "accuracy", "threshold", "certified_" and one of these, "flag_" and a
    # check's name, or "class_", its number and one of these
    metric: str
    value: float
    low: float | None  # 95 % interval
    high: float | None
    n_in: int
    n_out: int
    seed: int
    verdict: Verdict  # whether the attack behind this number can be believed

    @property
    def small(self) -> bool:
        """Whether fewer than 100 images of a side are behind it."""
        return any(0 < n < SMALL for n in (self.n_in, self.n_out))

    def line(self) -> str:
        """The row as one line of rows.jsonl."""
        return json.dumps(asdict(self)) + "\n"


@runtime_checkable
class Ball(Protocol):
    """What rows say of a `rood.threat.Threat`, which would bring torch along."""

    @property
    def norm(self) -> str: ...
    @property
    def eps(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was measured of one detector."""

    clean: Mapping[str, Arrays]  # by image set
    attacked: Mapping[tuple[str, Ball], Arrays]
    outside: Sequence[str]
    threats: Sequence[Ball]  # in the order of eps
    sides: Sequence[Side]
    attack: str
    # bounds of the scores, where they are certified
    bounds: Mapping[tuple[str, Ball], Arrays] = field(default_factory=dict)
    method: str = ""  # that gave them
    # where classes are held out: which ID images have the right predicted class, ...
    right: NDArray[np.bool_] | None = None
    classes: Sequence[int] = ()  # ... and the number given of each label, the known ones first


def accuracy_row(model: str, seed: int, right: metrics.Interval, n: int) -> Row:
    """The share of n labelled ID images that a network gets right."""
    row = _clean_row(model, "", seed)
    return replace(row, metric="accuracy", **right._asdict(), n_in=n)


def detector_rows(e: Evidence, model: str, detector: str, seed: int) -> Iterator[Row]:
    """Every row of one detector: threshold, then set by set, clean and attacked, and the flags."""
    calibrate = e.clean["calibrate"]["scores"]
    threshold = metrics.threshold_at_tpr(calibrate)
    row = _clean_row(model, detector, seed)
    yield replace(row, metric="threshold", value=threshold, n_in=len(calibrate))
    yield from _corrupted_rows(e, row, threshold)
    yield from _known_rows(e, row, threshold)
    for dataset in e.outside:
        yield from _dataset_rows(e, replace(row, dataset=dataset), threshold)


def _clean_row(model: str, detector: str, seed: int) -> Row:
    return Row(
        model=model,
        detector=detector,
        dataset="inside",
        scenario=CLEAN,
        side="none",
        metric="",
        value=0.0,
        low=None,
        high=None,
        n_in=0,
        n_out=0,
        seed=seed,
        verdict="-",
    )


def _dataset_rows(e: Evidence, template: Row, threshold: float) -> Iterator[Row]:
    inside, outside = e.clean["inside"], e.clean[template.dataset]
    yield from _metric_rows(template, inside, outside, threshold)
    yield from _open_set_rows(e, template, outside)
    yield from _class_rows(e, template, threshold)
    clean = metrics.auroc(inside=inside["scores"], outside=outside["scores"])
    cases = list(_cases(e, template.dataset, clean))
    largest = {(case.side, case.norm): case for _, case in cases}  # eps grows
    for threat, case in cases:
        found = checks.flags(replace(case, largest=largest[case.side, case.norm]))
        now_in, now_out = case.sets
        row = replace(
            template,
            scenario=f"{e.attack} {threat}",
            side=case.side,
            n_in=len(now_in["scores"]),
            n_out=len(now_out["scores"]),
            verdict=checks.worst(found),
        )
        yield from _metric_rows(row, now_in, now_out, threshold)
        if case.side == "outside":  # the predicted classes are those of clean ID images
            yield from _open_set_rows(e, row, now_out)
        yield from _flag_rows(row, found)
    yield from _certified_rows(e, template, threshold)


def _corrupted_rows(e: Evidence, row: Row, threshold: float) -> Iterator[Row]:
    """False alarms at the threshold on the ID images under each corruption, and under all."""
    row = replace(row, metric="fpr95_out_fixed")
    alarms = []
    for name in (n for n in e.clean if n.startswith(CORRUPTED)):
        arrays = e.clean[name]
        alarms.append(arrays["scores"] > threshold)
        found = metrics.share_of(alarms[-1], arrays.get("groups"))
        scenario = name.removeprefix(CORRUPTED)
        yield replace(row, scenario=scenario, n_in=len(alarms[-1]), **found._asdict())
    if alarms:
        n = len(alarms[0])  # the same images each time, so that each is a group at least
        groups = np.tile(e.clean["inside"].get("groups", np.arange(n)), len(alarms))
        found = metrics.share_of(np.concatenate(alarms), groups)
        scenario = "corrupted:" + scenario.rpartition(":")[2]
        yield replace(row, scenario=scenario, n_in=n, **found._asdict())


def _known_rows(e: Evidence, row: Row, threshold: float) -> Iterator[Row]:
    """The share of ID images that are accepted and get the right class, in all and by class."""
    if e.right is None:
        return
    inside, right = e.clean["inside"], e.right
    s, groups, labels = inside["scores"], inside.get("groups"), inside["labels"]
    every = metrics.ccr_at(threshold, inside=s, right=right, groups=groups)
    yield replace(row, metric="ccr_fixed", n_in=len(s), **every._asdict())
    for label, number in enumerate(e.classes):
        mine = labels == label
        if not mine.any() or not _several(own := None if groups is None else groups[mine]):
            continue
        found = metrics.ccr_at(threshold, inside=s[mine], right=right[mine], groups=own)
        name = f"class_{number}_ccr_fixed"
        yield replace(row, metric=name, n_in=int(mine.sum()), **found._asdict())


def _open_set_rows(e: Evidence, row: Row, outside: Known) -> Iterator[Row]:
    """OSCR against one set."""
    if e.right is None:
        return
    inside = e.clean["inside"]
    groups = inside.get("groups"), outside.get("groups")
    s_in, s_out = inside["scores"], outside["scores"]
    found = metrics.oscr_interval(s_in, e.right, s_out, seed=row.seed, groups=groups)
    yield replace(row, metric="oscr", n_in=len(s_in), n_out=len(s_out), **found._asdict())


def _class_rows(e: Evidence, row: Row, threshold: float) -> Iterator[Row]:
    """AUROC of each known class against all of a set, and of each class of it against all ID."""
    if e.right is None:
        return
    sides = e.clean["inside"], e.clean[row.dataset]
    for label, number in enumerate(e.classes):
        for which in (0, 1) if row.dataset == OPEN_SET else (0,):
            if (labels := sides[which].get("labels")) is None or not (labels == label).any():
                continue
            pair = list(sides)
            pair[which] = {k: v[labels == label] for k, v in sides[which].items()}
            inside, outside = pair
            groups = inside.get("groups"), outside.get("groups")
            if not all(map(_several, groups)):
                continue
            s_in, s_out = inside["scores"], outside["scores"]
            row = replace(row, n_in=len(s_in), n_out=len(s_out))
            found = metrics.auroc_interval(s_in, s_out, seed=row.seed, groups=groups)
            yield replace(row, metric=f"class_{number}_auroc", **found._asdict())
            if which:
                missed = metrics.share_of(s_out <= threshold, groups[1])
                name = f"class_{number}_fpr95_in_fixed"
                yield replace(row, metric=name, **missed._asdict())


def _several(groups: NDArray[Any] | None) -> bool:
    """Whether an interval can be computed: the images of one group say nothing of others."""
    return groups is None or len(groups) == 1 or len(np.unique(groups)) > 1


def _certified_rows(e: Evidence, template: Row, threshold: float) -> Iterator[Row]:
    """Every metric with the bound of each attacked image in place of its score."""
    for threat in e.threats:
        for side in e.sides or SIDES:
            if (pair := _worst_allowed(e, template.dataset, threat, side)) is None:
                continue
            row = replace(template, scenario=f"{e.method} {threat}", side=side)
            for found in _metric_rows(row, *pair, threshold):
                yield replace(found, metric=CERTIFIED + found.metric)


def _worst_allowed(
    e: Evidence, dataset: str, threat: Ball, side: Side
) -> tuple[Known, Known] | None:
    """ID and OOD scores where every attacked image is at its bound; None where there is none."""
    pair: list[Known] = []
    for name, end, other in (("inside", "high", "outside"), (dataset, "low", "inside")):
        clean, bounds = e.clean[name], e.bounds.get((name, threat))
        if bounds is None:
            return None
        pair.append(clean if side == other else {**clean, "scores": bounds[end]})
    return pair[0], pair[1]


def _cases(e: Evidence, dataset: str, clean: float) -> Iterator[tuple[Ball, Case]]:
    """What the checks look at, for every threat and side."""
    inside, outside = e.clean["inside"], e.clean[dataset]
    path: dict[tuple[Side, str], list[float]] = {}  # AUROC as eps grows, clean first
    for threat in e.threats:
        for side in e.sides:
            now_in = inside if side == "outside" else _attacked(e, "inside", threat)
            now_out = outside if side == "inside" else _attacked(e, dataset, threat)
            aurocs = path.setdefault((side, threat.norm), [clean])
            aurocs.append(metrics.auroc(inside=now_in["scores"], outside=now_out["scores"]))
            case = Case(
                sets=(now_in, now_out),
                clean=(inside["scores"], outside["scores"]),
                aurocs=tuple(aurocs),
                norm=threat.norm,
                eps=threat.eps,
                side=side,
                sides=e.sides,
                certified=_proved(e, dataset, threat, side),
            )
            yield threat, case


def _proved(e: Evidence, dataset: str, threat: Ball, side: Side) -> float | None:
    """The certified AUROC."""
    if (pair := _worst_allowed(e, dataset, threat, side)) is None:
        return None
    return metrics.auroc(inside=pair[0]["scores"], outside=pair[1]["scores"])


def _attacked(e: Evidence, dataset: str, threat: Ball) -> Arrays:
    """What is known of one attacked set; what has no budget was measured at one for all of them."""
    unlimited = [
        {k: v for k, v in arrays.items() if k in ("far", "far_start")}
        for (name, other), arrays in e.attacked.items()
        if (name, other.norm) == (dataset, threat.norm) and "far" in arrays
    ]
    return e.attacked[dataset, threat] | (unlimited[-1] if unlimited else {})


def _metric_rows(row: Row, inside: Known, outside: Known, threshold: float) -> Iterator[Row]:
    s_in, s_out = inside["scores"], outside["scores"]
    row = replace(row, n_in=len(s_in), n_out=len(s_out))
    groups = (inside.get("groups"), outside.get("groups"))
    for metric, (value, low, high) in metrics.summary(
        s_in, s_out, threshold, seed=row.seed, groups=groups
    ).items():
        yield replace(row, metric=metric, value=value, low=low, high=high)


def _flag_rows(row: Row, found: Sequence[Flag]) -> Iterator[Row]:
    for flag in found:
        yield replace(row, metric=f"flag_{flag.name}", value=flag.value, verdict=flag.verdict)
