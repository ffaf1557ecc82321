"""Liang et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*, 2020.

OOD images take the code of an in-distribution image within an L2 ball. A perfect match ends at an
AUROC of one half, not at 0: beside each the attack that lowers the score itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rood.analysis.matching import Matched
from rood.metrics import Interval
from rood.shapes import Scores
from rood_papers.framework.cells import LOSS, Cell
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment, Part
from rood_papers.framework.intervals import median
from rood_papers.framework.paper import printed
from rood_papers.liang.claims import claims
from rood_papers.liang.figures import FIGURES
from rood_papers.liang.glow import GENERATIVE
from rood_papers.liang.presets import PRESETS
from rood_papers.liang.scores import (
    CALIBRATED,
    ENSEMBLE,
    EXPOSED,
    GRAM,
    JEM,
    MAHALANOBIS,
    STEPS,
    TEMPERATURES,
    odin_name,
)
from rood_papers.liang.systems import (
    Case,
    code_error,
    direct,
    first_of,
    matched,
    ready,
    scored,
    stuck,
)

MEMBERS = tuple(f"cifar10/ensemble-{i}" for i in range(5))
IMAGENET = {"ResNet-18": 20.0, "DenseNet-121": 30.0}  # how far from noise
SHARED = 0.02  # of the images inside with one score: what is worth a word
LAST = 0.2  # the share of steps in which a flat curve falls no more
CURVE = 26  # points of a loss curve: every twenty-fifth part of the way


@dataclass(frozen=True)
class Line:
    """A case of a table, and where the paper prints it."""

    case: Case
    place: str
    facts: tuple[tuple[str, str], ...] = ()
    name: str = ""  # of the row, where it is not the score
    direct: bool = True  # whether our suite is run beside it
    note: str = ""  # what the paper says of its number


def _cells(experiment: str, line: Line) -> dict[str, Cell]:
    case = line.case
    facts = {"inside": case.world, "outside": case.start, "method": case.score} | dict(line.facts)
    known = printed("liang", line.place, target=case.code, metric="auroc", **facts)
    cell = Cell(
        experiment=experiment,
        row=line.name or case.score,
        column=f"{case.world} from {case.start}, {case.code} within {case.eps:g}",
        metric="auroc",
        note=f"another network{f'; {line.note}' if line.note else ''}",
    )
    found = {
        "clean": cell,
        "official": replace(cell, attack="official", paper=known),
        "mape": replace(cell, attack="official", metric="mape_median"),
        "fall": replace(cell, attack="official", metric="last_fall"),
    }
    return found | ({"standard": replace(cell, attack="standard")} if line.direct else {})


def measured(context: Context, line: Line, cells: dict[str, Cell]) -> Iterator[Cell]:
    """Before, after the authors' attack as coded, and after ours."""
    s = ready(context, line.case)
    n, network = len(s.clean_in), s.network
    clean, m = s.ranked(s.clean_out)
    yield cells["clean"].found(clean, n, m, network=network)
    found = matched(context, line.case)
    after, m = s.ranked(scored(s.detector, found.images), paired=True)
    steps = f"{len(found.losses)} steps, the paper {line.case.steps}"
    note = f"{cells['official'].note}; {steps}"
    yield cells["official"].found(after, n, m, network=network, note=note)
    yield code_error(found, cells["mape"], network)
    yield cells["fall"].found(last_fall(found), n, m, network=network)
    yield from loss_curve(found, cells["official"])
    if "standard" in cells:
        own, m = s.ranked(direct(context, line.case))
        flat = stuck(context, line.case)
        note = cells["standard"].note + (f"; no slope at {flat:.0%} of the starts" if flat else "")
        note += lowest(s.clean_in)
        yield cells["standard"].found(own, n, m, network=network, note=note)


def lowest(inside: Scores) -> str:
    """What to say where many images share a score that no attack can go below."""
    least = (inside == inside.min()).double().mean().item()
    if least <= SHARED:
        return ""
    return f"; the lowest score is that of {least:.0%} inside: nothing can go below it"


def last_fall(found: Matched) -> Interval:
    """By how much of its first value an image's loss falls in the last fifth of the steps."""
    loss = found.losses.double()
    start = int(len(loss) * (1 - LAST))
    falls = (loss[start - 1] - loss[start:].mean(dim=0)) / loss[0].clamp_min(1e-30)
    return median(falls.cpu().numpy())


def loss_curve(found: Matched, cell: Cell) -> Iterator[Cell]:
    """The loss of the median image along the way, as a share of what each began with."""
    name = f"{cell.row}, {cell.column.partition(',')[0]}"  # two lines may differ in their worlds
    shares = found.losses.double() / found.losses[0].double().clamp_min(1e-30)
    middle = shares.median(dim=1).values
    point = replace(cell, row=name, group=name, column="step", metric=LOSS, kind="point")
    point = replace(point, paper=None, note="")
    for i in np.unique(np.linspace(0, len(middle) - 1, CURVE).round().astype(int)):
        yield point.found(float(middle[i]), x=float(i))


def _parts(experiment: str, lines: Sequence[Line], context: Context) -> Iterator[Part]:
    for line in lines:
        cells = _cells(experiment, line)
        first = cells["clean"]
        name = f"{first.row}, {first.column}"
        yield Part(name, tuple(cells.values()), partial(measured, context, line, cells))


# tables


def table1(context: Context) -> Iterator[Part]:
    """Large images."""
    lines = []
    for model, far in IMAGENET.items():
        own = f"imagenet/{model.lower().replace('-', '')}"
        role = _or_first(context, own, "net")
        for start, eps in (("chestxray", 5.0), ("lung-ct", 5.0), ("noise", far)):
            case = Case("imagenet", (role,), "MSP", "features", start, eps, 10_000)
            note = "" if start == "noise" else "the paper calls 0.63 to 0.65 close to 0.5"
            lines.append(Line(case, "table1", (("model", model),), f"MSP, {model}", note=note))
    return _parts("liang/table1", lines, context)


def _odin(temperature: int, eta: float) -> Case:
    name = odin_name(temperature, eta)
    return Case("cifar10", ("cifar10/ce",), name, "preprocessed logits", steps=100)


def table2(context: Context) -> Iterator[Part]:
    """ODIN at every temperature and step."""
    last = max(TEMPERATURES)
    pairs = [(t, eta) for eta in STEPS for t in TEMPERATURES]
    lines = [Line(_odin(t, eta), "table2", direct=t == last) for t, eta in pairs]
    return _parts("liang/table2", lines, context)


def mahalanobis(place: str, world: str, context: Context) -> Iterator[Part]:
    """The score itself matched, and the layers below it."""
    lines = [
        Line(
            Case(
                world,
                (f"{world}/ce",),
                MAHALANOBIS.format(eta),
                code,
                most=200 if eta and code == "score" else 1000,  # a step of a dozen passes
            ),
            place,
            name=f"{MAHALANOBIS.format(eta)}, {code}",
            direct=code == "score",
            note="the preprocessed image has another code" if eta and code == "layers" else "",
        )
        for eta in (0, 0.01)
        for code in ("score", "layers")
    ]
    return _parts(f"liang/{place}", lines, context)


def table5(context: Context) -> Iterator[Part]:
    """Outlier exposure."""
    most = {"svhn": 10_000, "cifar10": 1000, "cifar100": 1000}  # SVHN's loss still falls then
    lines = [
        Line(Case(w, (f"{w}/oe",), EXPOSED, "logits", steps=10_000, most=n), "table5")
        for w, n in most.items()
    ]
    return _parts("liang/table5", lines, context)


def table6(context: Context) -> Iterator[Part]:
    """A classifier calibrated by a GAN."""
    lines = [
        Line(Case(w, (f"{w}/calibrated",), CALIBRATED, "classifier input", steps=10_000), "table6")
        for w in ("svhn", "cifar10")
    ]
    return _parts("liang/table6", lines, context)


def table7(context: Context) -> Iterator[Part]:
    """Gram matrices."""
    worlds = ("cifar10", "cifar100")
    lines = [Line(Case(w, (f"{w}/ce",), GRAM, "score", steps=100), "table7") for w in worlds]
    return _parts("liang/table7", lines, context)


def table8(context: Context) -> Iterator[Part]:
    """The three scores of JEM."""
    role = _or_first(context, "cifar10/jem", "mnist/jem", "fashion/jem", "digits/jem")
    world, facts = role.partition("/")[0], (("inside", "cifar10"),)
    eps = 10.0 if world == "cifar10" else 5.0  # a third of the pixels
    lines = [
        Line(
            Case(world, (role,), score, "logits", "spiral", eps),
            "table8",
            facts,
            note="logits alone do not fix a slope" if kind == "jem_gradient" else "",
        )
        for score, kind in JEM.items()
    ]
    return _parts("liang/table8", lines, context)


def figure17(context: Context) -> Iterator[Part]:
    """Five networks, all their logits matched."""
    case = Case("cifar10", MEMBERS, ENSEMBLE, "members", steps=10_000)
    note = "the paper has five members in its text, six in its experiment"
    return _parts("liang/figure17", [Line(case, "appendix-f", note=note)], context)


def _or_first(context: Context, *roles: str) -> str:
    """The first that is there; the first of all where none is, and then not run."""
    try:
        return first_of(context, *roles)
    except NotRun:
        return roles[0]


_WHY = (
    "other networks: both of ImageNet are EfficientNet-lite0, so that their X-ray and CT rows are "
    "the same; CIFAR's are WRN-40-2, SVHN's a WRN-16-1 of 4,000 of its test images; 200 images a "
    "side (64 of ImageNet's), detectors fitted on 5,000, Gram on the last layer of each stage, the "
    "calibrated classifiers VGG13s of half the width, of 60 epochs on 3,972 of SVHN's test images "
    "(90.7 % right) and of 20 on CIFAR-10 (82.8 %), not in the zoo: their recipes are; "
    "Mahalanobis too on the last layer of each stage, of which the third is before its ReLU; "
    "fewer steps, as each row says; OOD images alone are attacked; an attack without a target is "
    "one image where all pairs start from one"
)
_JEM = (
    "the paper's network is of CIFAR-10, ours a small one of MNIST, within 5 in place of 10: its "
    "densities tell a spiral apart, its other two scores do not. Our suite leaves the density at "
    "1.00 and proves little: from a spiral it finds no digit either where the ball is large enough "
    "to hold them all. " + _WHY
)
_ENSEMBLE = f"five WRN-16-1 trained plainly, the paper's against attacks; {_WHY}"
_CE = "{}-ce of the zoo and its images"
_TABLES = (
    ("table1", "MSP of large images", "EfficientNet-lite0 and the ImageNet sample", table1),
    ("table2", "ODIN", _CE.format("cifar10"), table2),
    ("table3", "Mahalanobis of several layers", _CE.format("cifar10"),
     partial(mahalanobis, "table3", "cifar10")),
    ("table4", "the same for CIFAR-100", _CE.format("cifar100"),
     partial(mahalanobis, "table4", "cifar100")),
    ("table5", "outlier exposure", "svhn-oe, cifar10-oe, cifar100-oe and their images", table5),
    ("table6", "a calibrated classifier", "svhn-calibrated, cifar10-calibrated", table6),
    ("table7", "Gram matrices", "cifar10-ce, cifar100-ce and their images", table7),
    ("table8", "JEM's three scores", "cifar10-jem, mnist-jem or fashion-jem", table8),
    ("figure17", "an ensemble of networks", "cifar10-ensemble-0 to -4", figure17),
)  # fmt: skip
EXPERIMENTS = (
    *(
        Experiment(
            f"liang/{p}",
            what,
            needs,
            parts,
            partial(claims, f"liang/{p}"),
            why={"table8": _JEM, "figure17": _ENSEMBLE}.get(p, _WHY),
        )
        for p, what, needs, parts in _TABLES
    ),
    *GENERATIVE,
    *FIGURES,
    *PRESETS,
)
