"""What rood does, as functions: the command line and Python code call the same ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from rood.attacks.base import Attack
from rood.attacks.worst_of import WorstOf
from rood.data.base import SPLIT_RULE, ImageSet, refuse_overlap, split
from rood.detectors.base import Detector
from rood.errors import InputError
from rood.evaluation.checks.base import Side
from rood.evaluation.crafting import Crafting, ScoresTable, Summary, plan_crafting
from rood.evaluation.engines import Engine
from rood.evaluation.plan import Plan
from rood.evaluation.prepare import plan_audit
from rood.evaluation.rows import SIDES
from rood.evaluation.run import Step, run
from rood.evaluation.settings import AuditSettings
from rood.evaluation.store import Results, Store
from rood.guard.export import check_name
from rood.guard.fit import Fitted, fit_guard
from rood.models.model import Model
from rood.registry import unknown
from rood.report import write_report
from rood.threat import Threat

__all__ = ["attack", "audit", "carry_out", "fit", "plan", "plan_crafting"]

AnyImages = ImageSet | Tensor | tuple[Tensor, Tensor]  # pixels in [0, 1]; labels second
Watch = Callable[[Iterable[Step]], Iterable[Step]]  # passes the steps on, showing them


def audit(
    model: Model,
    detectors: Mapping[str, Detector],
    *,
    inside: AnyImages,
    outside: Mapping[str, AnyImages],
    threats: Sequence[Threat],
    out: str | Path,
    calibrate: AnyImages | None = None,
    groups: Mapping[str, Sequence[object]] | None = None,
    attack: Attack | None = None,
    sides: Sequence[Side] = SIDES,
    name: str = "model",
    seed: int = 0,
    batch_size: int | None = None,
    engine: Engine | None = None,
) -> Results:
    """Score every detector clean and under attack, with intervals and verdicts.

    Rows, scores, attacked examples, the manifest and the page `report.html` are written to `out`.
    The same call on the same folder continues where it stopped.

    Parameters
    ----------
    model
        The network, as `rood.wrap` or `rood.zoo.load` return it.
    detectors
        Fitted detectors of that network, by the name they get in the results.
    inside
        ID test images, pixels in [0, 1]; with labels, the accuracy is measured too.
    outside
        OOD image sets by name.
    threats
        Perturbation budgets; none for a clean audit.
    out
        The results folder.
    calibrate
        ID images that set the threshold; None takes a quarter of `inside`.
    groups
        By set ("inside" or a name of `outside`): one id per image, such as the video it is from.
        Images of a group are not independent: intervals resample groups instead of images.
    attack
        The attack; `WorstOf(tier="quick")` by default.
    sides
        Which sides to attack: "outside", "inside", "both".
    name
        The network's name in the results.
    seed
        Random seed.
    batch_size
        Images at once; None: as memory allows. Changes speed, not scores.
    engine
        Where the work is done; None: this process. See `rood.evaluation.engines.ray.Ray`.

    Returns
    -------
    Results
        The rows of the folder.

    Examples
    --------
    >>> import tempfile, rood, torch
    >>> from rood.attacks import PGD
    >>> from rood.detectors import MSP
    >>> from rood.threat import Linf
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(220, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> x_in, x_out = x[:200], x[200:].round()
    >>> results = rood.audit(model, {"msp": MSP(model)}, inside=x_in, outside={"binary": x_out},
    ...                      threats=[Linf(1 / 255)], attack=PGD(steps=2), out=tempfile.mkdtemp())
    >>> len(results.find(detector="msp", metric="auroc", side="both"))
    1
    """
    for detector_name, detector in detectors.items():
        if detector.model is not model:
            raise InputError(f"expected detector {detector_name!r} to be built on the model given")
    ids = _group_ids(groups or {}, ["inside", *outside])
    test = _image_set(inside, "inside", ids)
    told: dict[str, object] = {"rule": "given by the caller", "test": len(test)}
    if calibrate is None:
        parts = split(test, "threshold", calibrate=0.25, test=0.75)
        calibrate, test = parts["calibrate"], parts["test"]
        told = {"rule": SPLIT_RULE, "calibrate": len(calibrate), "test": len(test)}
    else:
        refuse_overlap(_image_set(calibrate, "calibrate"), test, "calibrate", "inside")
    plan = Plan(
        detectors={name: detectors},
        calibrate=_image_set(calibrate, "calibrate"),
        inside=test,
        outside={n: _image_set(x, n, ids) for n, x in outside.items()},
        threats=threats,
        attack=attack or WorstOf(tier="quick"),
        sides=sides,
        seed=seed,
        batch_size=batch_size,
        about={"split": told},
    )
    return carry_out(plan, out, engine)


def plan(settings: AuditSettings, out: str | Path) -> Plan:
    """Load and fit what the settings name; a run into `out` that was interrupted is continued."""
    earlier = Store(Path(out)).said("budget")
    return plan_audit(settings, earlier if isinstance(earlier, dict) else None)


def carry_out(
    plan: Plan, out: str | Path, engine: Engine | None = None, watch: Watch = iter
) -> Results:
    """Carry out a plan into a folder and write its page; `watch` sees every step."""
    for _ in watch(run(plan, Path(out), engine)):
        pass
    write_report(Path(out))
    return Results(Path(out))


def attack(crafting: Crafting, out: str | Path, watch: Watch = iter) -> Summary:
    """Save attacked images and their scores in a folder; `plan_crafting` says which."""
    for _ in watch(crafting.run(Path(out))):
        pass
    return ScoresTable(Path(out) / "scores.csv").summary()


def fit(
    settings: AuditSettings, out: str | Path, rate: float = 0.05, onnx: Path | None = None
) -> tuple[Fitted, str]:
    """Fit a guard and save it, as a graph too if `onnx` names a file; with its SHA-256."""
    if onnx is not None:
        check_name(onnx)  # before what takes long
    made = fit_guard(settings, rate)
    digest = made.guard.save(Path(out))
    if onnx is not None:
        made.guard.export(onnx)
    return made, digest


def _image_set(
    images: AnyImages, name: str, groups: Mapping[str, tuple[str, ...]] | None = None
) -> ImageSet:
    if not isinstance(images, ImageSet):
        x, y = images if isinstance(images, tuple) else (images, None)
        images = ImageSet(name, x.detach().cpu(), None if y is None else y.detach().cpu())
    return replace(images, groups=groups[name]) if groups and name in groups else images


def _group_ids(
    groups: Mapping[str, Sequence[object]], sets: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    for name in groups:
        if name not in sets:
            raise unknown("image set", name, sets)
    plain = {n: g.tolist() if isinstance(g, Tensor) else g for n, g in groups.items()}
    return {n: tuple("" if g is None else str(g) for g in ids) for n, ids in plain.items()}
