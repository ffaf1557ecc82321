"""From scores to rows: pure functions, so that rows can be made again from what is on disk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rood import metrics
from rood.evaluation import checks
from rood.evaluation.checks import Case, Flag
from rood.evaluation.results import Row, Side
from rood.evaluation.unit import Arrays
from rood.threat import Threat

SIDES: tuple[Side, ...] = ("outside", "inside", "both")


@dataclass(frozen=True)
class Evidence:
    """All that was measured of one detector."""

    calibrate: Arrays
    clean: Mapping[str, Arrays]  # by image set
    attacked: Mapping[tuple[str, Threat], Arrays]
    inside: str
    outside: Sequence[str]
    threats: Sequence[Threat]  # in the order of eps
    sides: Sequence[Side]
    attack: str


def detector_rows(e: Evidence, template: Row) -> Iterator[Row]:
    """Every row of one detector: threshold, then set by set, clean and attacked, and the flags."""
    threshold = metrics.threshold_at_tpr(e.calibrate["scores"])
    n = len(e.calibrate["scores"])
    yield replace(template, dataset=e.inside, metric="threshold", value=threshold, n_in=n)
    for dataset in e.outside:
        yield from _dataset_rows(e, replace(template, dataset=dataset), threshold)


def _dataset_rows(e: Evidence, template: Row, threshold: float) -> Iterator[Row]:
    inside, outside = e.clean[e.inside], e.clean[template.dataset]
    yield from _metric_rows(template, inside, outside, threshold)
    clean = metrics.auroc(inside=inside["scores"], outside=outside["scores"])
    path: dict[tuple[Side, str], list[float]] = {}  # AUROC as eps grows, clean first
    for threat in e.threats:
        for side in e.sides:
            now_in = inside if side == "outside" else _attacked(e, e.inside, threat)
            now_out = outside if side == "inside" else _attacked(e, template.dataset, threat)
            aurocs = path.setdefault((side, threat.norm), [clean])
            aurocs.append(metrics.auroc(inside=now_in["scores"], outside=now_out["scores"]))
            case = Case(
                sets=(now_in, now_out),
                clean=(inside["scores"], outside["scores"]),
                aurocs=aurocs,
                norm=threat.norm,
                eps=threat.eps,
                side=side,
                sides=e.sides,
            )
            found = checks.flags(case)
            row = replace(
                template,
                scenario=f"{e.attack} {threat}",
                side=side,
                n_in=len(now_in["scores"]),
                n_out=len(now_out["scores"]),
                verdict=checks.worst(found),
            )
            yield from _metric_rows(row, now_in, now_out, threshold)
            yield from _flag_rows(row, found)


def _attacked(e: Evidence, dataset: str, threat: Threat) -> Arrays:
    """What is known of one attacked set; what has no budget was measured at one for all of them."""
    unlimited = [
        {k: v for k, v in arrays.items() if k in ("far", "far_start")}
        for (name, other), arrays in e.attacked.items()
        if (name, other.norm) == (dataset, threat.norm) and "far" in arrays
    ]
    return e.attacked[dataset, threat] | (unlimited[-1] if unlimited else {})


def _metric_rows(row: Row, inside: Arrays, outside: Arrays, threshold: float) -> Iterator[Row]:
    s_in, s_out = inside["scores"], outside["scores"]
    row = replace(row, n_in=len(s_in), n_out=len(s_out))
    for metric, (value, low, high) in metrics.summary(
        s_in, s_out, threshold, seed=row.seed
    ).items():
        yield replace(row, metric=metric, value=value, low=low, high=high)


def _flag_rows(row: Row, found: Sequence[Flag]) -> Iterator[Row]:
    for flag in found:
        yield replace(row, metric=f"flag_{flag.name}", value=flag.value, verdict=flag.verdict)
