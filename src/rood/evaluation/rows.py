"""From scores to rows: pure functions, so that rows can be made again from what is on disk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rood import metrics
from rood.evaluation import checks
from rood.evaluation.checks import Finding
from rood.evaluation.results import Row, Side
from rood.evaluation.unit import Arrays
from rood.threat import Threat

Values = NDArray[np.float64]

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
            found = [
                *_attack_findings((now_in, now_out)),
                checks.tied_scores(inside["scores"], outside["scores"]),
                checks.rises_with_eps(aurocs),
                checks.one_side_only(e.sides),
            ]
            if side == "both":
                found.append(checks.too_good(aurocs[-1], threat.eps, threat.norm))
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


def _attack_findings(sides: Sequence[Arrays]) -> list[Finding]:
    """What the attacked sets say of the attack, each on its own: a masked side must not hide."""
    worst: dict[str, Finding] = {}
    for a, other in zip(sides, reversed(sides), strict=True):
        for f in _set_findings(a, other) if "control" in a else ():
            worst[f.name] = max(worst.get(f.name, f), f, key=lambda f: f.value)
    return list(worst.values())


def _set_findings(a: Arrays, other: Arrays) -> Iterator[Finding]:
    """A check without its arrays, of a folder that an older rood wrote, is left out."""
    sign = float(a["sign"][0])  # the wanted way counts up
    enough = float(a["enough"][0]) if "enough" in a else np.inf

    def values(name: str) -> Values:
        """An image that is done stopped there: what lies beyond is no merit and no fault."""
        return np.minimum(sign * a[name].astype(np.float64), enough)

    before = values("control_before")
    yield checks.zero_gradient(a["zero_gradient"])
    yield checks.untrue_gradient(a["honesty"])
    yield checks.random_search_wins(values("control") - before, values("control_after") - before)
    yield checks.left_the_threat_model(a["left"])
    if "again" in a:
        yield checks.two_calls_differ(a["apart"], a["again"], a["before"])
        yield checks.batch_matters(a["apart"], a["again"], a["control_before"], a["before"])
        gained = [values(name) - values("before") for name in ("direct", "scores")]
        yield checks.transfer_beats_direct(*gained)
        yield checks.base_only(*gained)
        clean = sign * other.get("before", other["scores"]).astype(np.float64)
        yield checks.lost_by_rounding(values("control_after"), values("rounded"), clean)
    if "more" in a:
        now = sign * other["scores"].astype(np.float64)
        yield checks.more_steps_gain(values("few_after"), values("more"), now)
    if "far" in a:
        yield checks.far_from_zero(sign * a["far"], sign * a["far_start"])


def _metric_rows(row: Row, inside: Arrays, outside: Arrays, threshold: float) -> Iterator[Row]:
    s_in, s_out = inside["scores"], outside["scores"]
    row = replace(row, n_in=len(s_in), n_out=len(s_out))
    for metric, (value, low, high) in metrics.summary(
        s_in, s_out, threshold, seed=row.seed
    ).items():
        yield replace(row, metric=metric, value=value, low=low, high=high)


def _flag_rows(row: Row, found: Sequence[Finding]) -> Iterator[Row]:
    for f in found:
        yield replace(row, metric=f"flag_{f.name}", value=f.value, verdict=f.verdict)
