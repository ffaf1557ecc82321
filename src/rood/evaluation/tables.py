"""From scores to rows: pure functions, so that rows can be made again from what is on disk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rood import metrics
from rood.evaluation import sanity
from rood.evaluation.results import Row, Side
from rood.evaluation.sanity import Finding
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
            now_in = inside if side == "outside" else e.attacked[e.inside, threat]
            now_out = outside if side == "inside" else e.attacked[template.dataset, threat]
            aurocs = path.setdefault((side, threat.norm), [clean])
            aurocs.append(metrics.auroc(inside=now_in["scores"], outside=now_out["scores"]))
            found = [
                *_attack_findings([now_in, now_out]),
                sanity.tied_scores(inside["scores"], outside["scores"]),
                sanity.rises_with_eps(aurocs),
                sanity.one_side_only(e.sides),
            ]
            if side == "both":
                found.append(sanity.too_good(aurocs[-1], threat.eps, threat.norm))
            row = replace(
                template,
                scenario=f"{e.attack} {threat}",
                side=side,
                n_in=len(now_in["scores"]),
                n_out=len(now_out["scores"]),
                verdict=sanity.worst(found),
            )
            yield from _metric_rows(row, now_in, now_out, threshold)
            yield from _flag_rows(row, found)


def _attack_findings(sets: Sequence[Arrays]) -> Iterator[Finding]:
    """What the attacked sets say of the attack, each on its own: a masked side must not hide."""
    attacked = [a for a in sets if "control" in a]
    for found in zip(*map(_set_findings, attacked), strict=True):
        yield max(found, key=lambda f: f.value)


def _set_findings(a: Arrays) -> list[Finding]:
    control, before, after = (
        a[k].astype(np.float64) for k in ("control", "control_before", "control_after")
    )
    sign = a["sign"][0]  # the wanted way counts up
    return [
        sanity.zero_gradient(a["zero_gradient"]),
        sanity.untrue_gradient(a["honesty"]),
        sanity.random_search_wins(sign * (control - before), sign * (after - before)),
        sanity.left_the_threat_model(a["left"]),
    ]


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
