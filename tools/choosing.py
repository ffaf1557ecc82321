"""docs/how-to/choose-detector.md: which detector, by what was measured."""

from tools.detectors import known
from tools.markdown import RESULTS, Row, percent, read, table, texts
from tools.zoo import SCORES, Measured

TEXT = texts("choosing")
FEW = (
    *("knn", "relative_mahalanobis", "pro_msp_t", "vim", "entropy", "gen", "msp", "react"),
    *("energy", "max_logit", "gram", "mahalanobis", "layered_mahalanobis", "odin"),
)
HARDENED = {"cifar10-aloe": "1/255", "cifar10-aloe-8": "8/255"}


def page() -> str:
    """The whole page."""
    scoring, fitting = (_cost(f"{what} / forward pass") for what in ("score", "fit"))
    return (
        TEXT["page"]
        .lstrip()
        .format(
            plain=plain(),
            hardened=hardened(),
            count=scoring["name"].split()[0],
            scoring=scoring["value"],
            fitting=fitting["value"],
        )
    )


def plain() -> str:
    """Clean and attacked, on a network without a defence."""
    found = sorted(((n, known()[n]) for n in FEW), key=lambda pair: -pair[1].near)
    lines = [[f"`{n}`", *(f"{v:.1f}" for v in k if v is not None)] for n, k in found]
    return table(["detector", "near", "far", "attacked"], lines)


def hardened() -> str:
    """The scores that were measured on hardened networks, attacked."""
    measured = Measured()
    lines = []
    for name, eps in HARDENED.items():
        found = [measured.mean(name, "auroc", "standard", eps, s) for s in SCORES]
        lines.append([f"`{name}`", eps, *map(percent, found)])
    return table(["network", "eps", *(f"`{s}`" for s in SCORES)], lines)


def _cost(name: str) -> Row:
    (row,) = (r for r in read(RESULTS / "performance-scoring.jsonl") if name in r.get("name", ""))
    return row
