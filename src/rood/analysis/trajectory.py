"""How a score moves along unprojected sign-gradient steps, and the AUROC at each norm on the way.

Fort, *Adversarial vulnerability of powerful near out-of-distribution detection*, 2022,
arXiv:2201.07012. This is not an attack: nothing is projected, so that iterates leave the pixel box
and a projected attack of the same size finds more. Every number comes with the share of images that
had left the box.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from rood.attacks.base import value_and_gradient
from rood.detectors.base import Detector, ScoreFunction, check_images
from rood.errors import InputError, expect
from rood.metrics import Floats, Interval, summary
from rood.shapes import Images, Scores

Direction: TypeAlias = Literal["look_in", "look_out"]
Norm: TypeAlias = Literal["l2", "linf"]
Known: TypeAlias = Scores | NDArray[Any]  # scores from elsewhere

ONE_LEVEL = 1 / 255  # of an eight-bit pixel: where the paper's tables are read


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Every iterate of a batch of images, t records of b images; `at` interpolates.

    The norms are those of the steps taken, before a pixel is rounded to the images' dtype.
    """

    direction: Direction
    step: float  # in pixel units
    sign_of_zero: int
    scores: Float[Tensor, "t b"]
    l2: Float[Tensor, "t b"]
    linf: Float[Tensor, "t b"]
    left_box: Bool[Tensor, "t b"]  # the flag left-the-box: some pixel is below 0 or above 1
    images: Float[Tensor, "t b c h w"] | None = None

    @classmethod
    def joined(cls, parts: Sequence["Trajectory"]) -> "Trajectory":
        """Several batches as one; without images where a part has none."""
        if not parts:
            raise InputError("expected at least one trajectory to join, got none")
        kinds = {(p.direction, p.step, p.sign_of_zero, len(p.scores)) for p in parts}
        what = "trajectories of the same direction, step, sign of zero and records"
        expect(len(kinds) == 1, what, f"{len(kinds)} kinds", do="join each kind by itself")
        images = [p.images for p in parts if p.images is not None]
        return replace(
            parts[0],
            scores=torch.cat([p.scores for p in parts], dim=1),
            l2=torch.cat([p.l2 for p in parts], dim=1),
            linf=torch.cat([p.linf for p in parts], dim=1),
            left_box=torch.cat([p.left_box for p in parts], dim=1),
            images=torch.cat(images, dim=1) if len(images) == len(parts) else None,
        )

    def norms(self, norm: Norm) -> Float[Tensor, "t b"]:
        """How far each iterate is from its start."""
        expect(norm in ("l2", "linf"), "the norm l2 or linf", repr(norm))
        return self.l2 if norm == "l2" else self.linf

    def common_range(self, norm: Norm) -> tuple[float, float]:
        """The norms that every image reached; only 0 if one image never moved."""
        norms = self.norms(norm)
        return norms.amin(dim=0).max().item(), norms.amax(dim=0).min().item()

    def at(self, norm: Norm, r: float) -> Scores | None:
        """Each image's score at norm r, linear between records; None outside `common_range`."""
        return self._between(self.scores, norm, r)

    def left_box_at(self, norm: Norm, r: float) -> Bool[Tensor, " b"] | None:
        """Whether a record used by `at` for each image had left the pixel box."""
        found = self._between(self.left_box, norm, r)
        return None if found is None else found > 0

    def _between(self, values: Tensor, norm: Norm, r: float) -> Scores | None:
        low, high = self.common_range(norm)
        expect(r >= 0, "a norm of at least 0", f"{r:g}")
        return _interpolated(self.norms(norm), values.double(), r) if low <= r <= high else None


class Point(NamedTuple):
    """An AUROC, and the share of attacked images that had left the pixel box for it."""

    auroc: Interval
    left_box: float


@dataclass(frozen=True, eq=False)
class AurocCurve:
    """AUROC against the norm of the perturbation; NaN where some image never had that norm."""

    norm: Norm
    direction: Direction
    n_in: int
    n_out: int
    radius: Floats  # (points,), like all that follow
    value: Floats
    low: Floats  # 95 % interval
    high: Floats
    left_box: Floats  # share of attacked images
    one_level: Point | None  # at 1/255; None where undefined


def trajectory(
    score: Detector | ScoreFunction,
    x: Images,
    *,
    direction: Direction,  # look_in lowers the score, look_out raises it
    step: float = 3e-4,  # in pixel units
    records: int = 30,  # the start included: 29 moves
    sign_of_zero: int = 0,
    keep_images: bool = False,
) -> Trajectory:
    r"""x_{t+1} = x_t -+ step sign(grad s(x_t)): no projection, no box, no random start.

    An image's records do not depend on the batch around it. Norms are those of x: give images of
    the network's size, or small ones to `LowResolution`.

    Parameters
    ----------
    score : Detector or function
        What to climb: a fitted detector, or a function from images to one number each.
    x : Tensor of shape (b, c, h, w)
        Images with pixels in [0, 1].
    direction : {"look_in", "look_out"}
        Whether to lower or to raise the score.
    step : float
        In pixel units.
    records : int
        Iterates to record, the start included.
    sign_of_zero : {0, -1, 1}
        The sign of a gradient of 0: in FORT's paper a pixel without a gradient stays (0); in its
        code whatever is not above 0 has sign -1, so that such pixels drift.
    keep_images : bool
        Whether to keep the iterates themselves.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> walk = rood.analysis.trajectory.trajectory(
    ...     rood.detectors.MSP(model), x, direction="look_in", records=3
    ... )
    >>> walk.scores.shape
    torch.Size([3, 4])
    >>> bool((walk.scores[-1] < walk.scores[0]).all())
    True
    """
    if direction not in ("look_in", "look_out"):
        raise InputError(f"expected the direction look_in or look_out, got {direction!r}")
    expect(sign_of_zero in (-1, 0, 1), "a sign of zero of -1, 0 or 1", sign_of_zero)
    expect(records >= 2, "at least 2 records", records, do="the start is one of them")
    function = _checked(score, x, step)
    towards = -1 if direction == "look_in" else 1
    found = []
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone()  # of an inference tensor, a copy can be differentiated
        moved = torch.zeros_like(x)  # whole steps, so that there and back again is nothing
        for _ in range(records):
            x_t = x + step * moved
            scores, gradient = value_and_gradient(function, x_t)
            found.append((*_record(scores, x_t, moved, step), *([x_t] if keep_images else [])))
            signs = torch.where(gradient == 0, sign_of_zero, gradient.sign())
            moved = moved + towards * signs
    columns = [torch.stack(column) for column in zip(*found, strict=True)]
    return Trajectory(direction, step, sign_of_zero, *columns)


def auroc_at(trajectory: Trajectory, clean: Known, norm: Norm, r: float) -> Point | None:
    """AUROC of the scores at norm r against clean ones of the other side; None where undefined.

    Parameters
    ----------
    trajectory : Trajectory
    clean : array_like of shape (n,)
        Scores of ID images for look_in, of OOD images for look_out.
    norm : {"l2", "linf"}
    r : float
        Norm of the perturbation, in pixel units.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> msp, analysis = rood.detectors.MSP(model), rood.analysis.trajectory
    >>> walk = analysis.trajectory(msp, x, direction="look_in", records=3)
    >>> clean = msp.score(x).detach().numpy()
    >>> point = analysis.auroc_at(walk, clean, "linf", 6e-4)
    >>> point.auroc.value < 0.5, point.left_box > 0
    (True, True)
    """
    scores, left = trajectory.at(norm, r), trajectory.left_box_at(norm, r)
    if scores is None or left is None:
        return None
    attacked = scores.cpu().numpy()
    inside, outside = (clean, attacked) if trajectory.direction == "look_in" else (attacked, clean)
    # the interval of an AUROC is DeLong's; resamples are for the other metrics, not used here
    auroc = summary(inside, outside, resamples=1)["auroc"]
    return Point(auroc, left.double().mean().item())


def auroc_curve(trajectory: Trajectory, clean: Known, norm: Norm, points: int = 33) -> AurocCurve:
    """`auroc_at` for norms spread evenly from the smallest to the largest of any image.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> msp, analysis = rood.detectors.MSP(model), rood.analysis.trajectory
    >>> walk = analysis.trajectory(msp, x, direction="look_in", records=3)
    >>> curve = analysis.auroc_curve(walk, msp.score(x).detach().numpy(), "linf", points=5)
    >>> curve.value[0]
    np.float64(0.5)
    """
    expect(points >= 2, "at least 2 points of a curve", points)
    norms = trajectory.norms(norm)
    radius = np.linspace(norms.min().item(), norms.max().item(), points)
    found = [auroc_at(trajectory, clean, norm, float(r)) for r in radius]
    undefined = (np.nan,) * 4
    rows = [undefined if p is None else (*p.auroc, p.left_box) for p in found]
    value, low, high, left_box = np.array(rows, dtype=np.float64).T
    n, m = len(clean), norms.shape[1]
    return AurocCurve(
        norm=norm,
        direction=trajectory.direction,
        n_in=n if trajectory.direction == "look_in" else m,
        n_out=m if trajectory.direction == "look_in" else n,
        radius=radius,
        value=value,
        low=low,
        high=high,
        left_box=left_box,
        one_level=auroc_at(trajectory, clean, norm, ONE_LEVEL),
    )


def _checked(score: Detector | ScoreFunction, x: Images, step: float) -> ScoreFunction:
    """The score as a function, after checks of the images and the step."""
    if x.ndim != 4 or not x.is_floating_point():
        got = f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
        raise InputError(f"expected float images of shape (b, c, h, w), got {got}")
    if x.numel() == 0:
        raise InputError(f"expected at least one image, got {tuple(x.shape)}")
    kind, least = str(x.dtype).removeprefix("torch."), torch.finfo(x.dtype).eps
    what = f"a step of at most 1 that {kind} pixels can make, above {least:.2g}"
    expect(least < step <= 1, what, f"{step:g}", do="the paper's is 3e-4")
    if isinstance(score, Detector):
        score.check_fitted()
        check_images(x, score.model)
        return score.score_images  # score() refuses pixels outside the box
    low, high = (v.item() for v in torch.aminmax(x.detach()))
    if not (low >= 0 and high <= 1):
        raise InputError(f"expected pixels in [0, 1], got [{low:.3g}, {high:.3g}]")
    return score


def _record(
    scores: Scores, x: Images, moved: Images, step: float
) -> tuple[Scores, Scores, Scores, Bool[Tensor, " b"]]:
    """Scores, both norms, and whether each image left the box."""
    if scores.shape != (len(x),):
        raise InputError(f"expected one score per image, got {tuple(scores.shape)} for {len(x)}")
    if bad := int((~scores.isfinite()).sum()):
        raise InputError(
            f"expected finite scores, got {bad} of {len(x)} that are not: drop those images"
        )
    flat = moved.flatten(1)
    l2 = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
    linf = flat.abs().amax(dim=1).double()
    left = ((x < 0) | (x > 1)).flatten(1).any(dim=1)
    return scores, step * l2, step * linf, left


def _interpolated(norms: Float[Tensor, "t b"], values: Float[Tensor, "t b"], r: float) -> Scores:
    """Each image's value at norm r, which lies between its norms; the latest of equal norms."""
    norms, order = norms.T.sort(dim=1, stable=True)  # (b, t)
    values = values.T.gather(1, order)
    norms = norms.contiguous()
    wanted = norms.new_full((len(norms), 1), r)
    above = torch.searchsorted(norms, wanted, right=True).clamp(max=norms.shape[1] - 1)
    (x0, x1), (y0, y1) = ((of.gather(1, above - 1), of.gather(1, above)) for of in (norms, values))
    gap = x1 - x0
    weight = torch.where(gap > 0, (r - x0) / gap, 1.0)
    return torch.lerp(y0, y1, weight).squeeze(1)
