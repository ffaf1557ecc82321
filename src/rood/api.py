"""What rood does, as functions: the command line and Python code call the same ones."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rood.attacks.base import Attack
from rood.data.given import AnyImages
from rood.errors import InputError, RoodWarning
from rood.evaluation.arguments import AnyDetectors, AnyOutside, AnyThreats, Arguments
from rood.evaluation.checks.base import Side
from rood.evaluation.crafting import Crafting, ScoresTable, Summary, plan_crafting
from rood.evaluation.engines import Engine
from rood.evaluation.plan import Plan
from rood.evaluation.prepare import plan_audit
from rood.evaluation.rows import SIDES
from rood.evaluation.run import run
from rood.evaluation.settings import AuditSettings
from rood.evaluation.steps import Step
from rood.evaluation.store import Results, Store
from rood.guard.export import check_name
from rood.guard.fit import Fitted, fit_guard
from rood.models.model import Model
from rood.progress import drawn
from rood.receipts.issue import check_issuable, issue
from rood.report import write_report

__all__ = ["attack", "audit", "carry_out", "fit", "plan", "plan_crafting"]

Watch = Callable[[Iterable[Step]], Iterable[Step]]  # passes the steps on, showing them


def audit(
    model: Model | str,
    detectors: AnyDetectors,
    *,
    inside: AnyImages,
    outside: AnyOutside | None = None,
    threats: AnyThreats,
    out: str | Path,
    open_set: int | str | Sequence[int | str] = (),
    corruptions: int | None = None,
    train: AnyImages | None = None,
    calibrate: AnyImages | None = None,
    groups: Mapping[str, Sequence[object]] | None = None,
    attack: Attack | str | None = None,
    sides: Side | Sequence[Side] = SIDES,
    certify: bool | str = False,
    limit: int | None = None,
    time_limit: str | None = None,
    name: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | None = None,
    engine: Engine | None = None,
    trust: bool = False,
    anyway: bool = False,
    progress: bool = False,
    receipt: str | Path | None = None,
) -> Results:
    """Score every detector clean and under attack, with intervals and verdicts.

    Rows, scores, attacked examples, the manifest and the page `report.html` are written to `out`.
    The same call on the same folder continues where it stopped. Nothing is printed; what you should
    know about network and images is a `RoodWarning`.

    Images are a tensor or array (n, c, h, w) or (n, h, w, c), uint8 or float in [0, 1]; (images,
    labels); an `ImageSet`; a torch `Dataset` or `DataLoader`; a data set of Hugging Face; a path
    or a spec such as "folder:val", "npz:x.npz", "digits:inside".

    Parameters
    ----------
    model
        The network, as `rood.wrap` or `rood.zoo.load` return it; or its name or file, as for
        `rood audit --model`.
    detectors
        Names such as ["msp", "knn"] or "all", fitted for you; detectors of that network; or a
        mapping of the names in the results to either.
    inside
        ID test images; with labels, the accuracy is measured too.
    outside
        OOD images: one set, a list of sets, or a mapping of names to sets; may be left out with
        `open_set`.
    threats
        Perturbation budgets: Linf(8 / 255), 8 / 255, "linf:8/255" or "l2:0.5", several in a list;
        [] for a clean audit.
    out
        The results folder.
    open_set
        Classes of `inside` to hold out, by name or number: their images are the OOD set
        "open_set". Rows have OSCR and the accuracy at the threshold too, also class by class.
    corruptions
        A severity from 1 to 5: count false alarms on ID images under common corruptions, too.
    train
        ID images that detectors are fitted on which are named or not fitted; None: a part of
        `inside`, as on the command line.
    calibrate
        ID images that set the threshold; None: a part of `inside`.
    groups
        By set ("inside" or a name of `outside`): one id per image, such as the video it is from.
        Images of a group are not independent: intervals resample groups instead of images.
    attack
        An attack, the name of one, or a tier of `WorstOf`: "quick" (default), "standard", "full".
    sides
        Which sides to attack: "outside", "inside", "both"; [] with `certify`: none.
    certify
        Whether to add rows that no attack can get below: True, or a method of
        `rood.certify.bounds`. A score found outside its bounds stops the run.
    limit
        Images per set, evenly spaced; None: all.
    time_limit
        Such as "90s" or "10m": what does not fit is left out and named. Attack and images stay as
        given; `rood audit --time` chooses them too.
    name
        The network's name in the results.
    seed
        Random seed.
    batch_size
        Images at once; None: as memory allows. Changes speed, not scores.
    device
        Where the network runs, such as "cuda"; None: where it is, or for a name the best there is.
    engine
        Where the work is done; None: this process. See `rood.evaluation.engines.ray.Ray`.
    trust
        Whether a network that is named may run code of its own.
    anyway
        Go on although a check of network and images failed, such as an accuracy near chance.
    progress
        Draw how far the audit is, on stderr; nothing is drawn otherwise.
    receipt
        Folder of a receipt to write too, which others can check by `rood verify`.

    Returns
    -------
    Results
        The rows of the folder.

    Raises
    ------
    RoodError
        Where an argument cannot be meant: one sentence says what was expected and what to do.

    Examples
    --------
    >>> import tempfile, rood
    >>> results = rood.audit("digits-ce", ["msp"], inside="digits:inside", outside="digits:near",
    ...                      threats=[0.05], attack="pgd", limit=20, out=tempfile.mkdtemp())
    >>> (row,) = results.find(detector="msp", metric="auroc", side="both")
    >>> row.scenario, row.value < 0.5
    ('pgd linf:0.05', True)
    """
    if not isinstance(out, str | os.PathLike):
        raise InputError(f"expected a results folder as out, got {type(out).__name__}")
    if not isinstance(engine, Engine | None):
        raise InputError(f"expected an engine, such as Ray(), got {type(engine).__name__}")
    made = Arguments(
        model=model,
        detectors=detectors,
        inside=inside,
        outside=outside,
        threats=threats,
        train=train,
        calibrate=calibrate,
        groups=groups,
        open_set=open_set,
        corruptions=corruptions,
        attack=attack,
        sides=sides,
        certify=certify,
        limit=limit,
        time_limit=time_limit,
        name=name,
        seed=seed,
        batch_size=batch_size,
        device=device,
        trust=trust,
        anyway=anyway,
    ).plan()
    for sentence in made.about.get("warnings", ()):
        warnings.warn(sentence, RoodWarning, stacklevel=2)
    watch = partial(drawn, title="auditing", quiet=not progress)
    return carry_out(made, out, engine, watch, receipt=receipt)


def plan(settings: AuditSettings, out: str | Path) -> Plan:
    """Load and fit what the settings name; a run into `out` that was interrupted is continued."""
    said = Store(Path(out)).said
    earlier = said("time") or said("budget")  # until 0.2
    return plan_audit(settings, earlier if isinstance(earlier, dict) else None)


def carry_out(
    plan: Plan,
    out: str | Path,
    engine: Engine | None = None,
    watch: Watch = iter,
    *,
    receipt: str | Path | None = None,
    who: Mapping[str, str] | None = None,
) -> Results:
    """Carry out a plan into a folder and write its page; `watch` sees every step.

    receipt: the folder of a receipt to write too; who: what it says of its issuer.
    """
    if receipt is not None:
        check_issuable(plan, Path(receipt), Path(out))
        plan = replace(plan, keep=True)
    for _ in watch(run(plan, Path(out), engine)):
        pass
    write_report(Path(out))
    if receipt is not None:
        issue(plan, Path(out), Path(receipt), who)
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
