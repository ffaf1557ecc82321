"""The guard: a classifier, a fitted detector and a threshold with a known false-alarm rate."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from rood.data.base import Shape
from rood.data.given import AnyBatches, batches_of
from rood.detectors.base import Detector, OutputDetector, check_images
from rood.detectors.low_resolution import LowResolution
from rood.errors import InputError, expect
from rood.evaluation.manifest import full_precision
from rood.guard.calibration import Calibration, calibrate
from rood.models.model import Model
from rood.shapes import Images, Labels, Logits, Scores


class Decision(NamedTuple):
    """A guard's decision on each image of a batch."""

    label: Labels  # the class that the network predicts
    score: Scores  # higher = more OOD
    accept: Bool[Tensor, " b"]  # whether the score is at most the threshold; False for NaN


@dataclass(frozen=True, eq=False, repr=False)
class Guard:
    """Accepts or rejects images with a calibrated OOD detector.

    Usually made by `Guard.calibrated` or `rood fit`, and loaded by `Guard.load`.

    Parameters
    ----------
    detector : Detector
        Fitted; its network gives the labels.
    calibration : Calibration
        The threshold and its guarantee.
    shape : (channels, height, width)
        Of the images on which the threshold was set.
    classes : tuple of str
        Names of the network's classes; empty if unknown.
    about : mapping
        Where the guard comes from, in types that JSON can represent.

    Raises
    ------
    InputError
        If the number of names is not the number of classes.

    Examples
    --------
    >>> import rood, torch
    >>> from rood import data
    >>> from rood.detectors import MSP
    >>> images = data.load("procedural:blobs,n=100", shape=(1, 28, 28))
    >>> guard = rood.Guard.calibrated(MSP(rood.zoo.load("digits-ce")), images.batches(50))
    >>> guard  # doctest: +ELLIPSIS
    <Guard: MSP on SmallCNN, threshold ..., false-alarm rate <= 0.05, images (1, 28, 28)>
    >>> label, score, accept = guard(torch.rand(4, 1, 28, 28))
    >>> accept.shape
    torch.Size([4])
    """

    detector: Detector
    calibration: Calibration
    shape: Shape
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _make_contiguous(self.detector)
        n, named = self.model.classes, len(self.classes)
        expect(named in (0, n), f"{n} names, one for each class of the network", named)

    def __repr__(self) -> str:
        return (
            f"<Guard: {type(self.detector).__name__} on {type(self.model.net).__name__}, "
            f"threshold {self.threshold:.6g}, false-alarm rate <= {self.calibration.rate:g}, "
            f"images {self.shape}>"
        )

    @classmethod
    def calibrated(
        cls,
        detector: Detector,
        batches: AnyBatches,
        *,
        rate: float = 0.05,
        classes: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
    ) -> "Guard":
        """Set the threshold on ID images.

        Parameters
        ----------
        detector : Detector
            Fitted.
        batches : iterable of (x, y), or images in any form of `rood.audit`
            ID images of one shape that neither network nor detector was trained on.
        rate : float
            Largest probability with which an image from the same source may be rejected.
        classes, about
            As for `Guard`.

        Returns
        -------
        Guard

        Raises
        ------
        InputError
            If there are too few images for the rate, or of several shapes.
        """
        _make_contiguous(detector)
        scores: list[Tensor] = []
        shapes: set[Shape] = set()
        for x, _ in batches_of(batches, detector.model.mean.device):
            check_images(x, detector.model)
            shapes.add((x.shape[1], x.shape[2], x.shape[3]))
            with _precise(x), torch.no_grad():
                scores.append(logits_and_score(detector, x)[1].double().cpu())
        if len(shapes) != 1:
            got = f"{len(shapes)} shapes" if shapes else "no image"
            raise InputError(f"expected calibration images of one shape, got {got}")
        found = calibrate(torch.cat(scores).numpy(), rate)
        return cls(detector, found, shapes.pop(), tuple(classes), dict(about or {}))

    @property
    def model(self) -> Model:
        """The network that gives the labels."""
        return self.detector.model

    @property
    def threshold(self) -> float:
        """The highest score that is accepted."""
        return self.calibration.threshold

    def __call__(self, x: Images) -> Decision:
        """Label, score, and accept or reject each image.

        Parameters
        ----------
        x : torch.Tensor
            Images (b, c, h, w) in [0, 1] of the calibrated shape, on the guard's device.

        Returns
        -------
        Decision
            `label`, `score` and `accept`, each of shape (b,).

        Raises
        ------
        InputError
            If the images have another shape, dtype or range.

        Examples
        --------
        `label, score, accept = guard(x)`
        """
        check_images(x, self.model)
        shape = f"(b, {', '.join(map(str, self.shape))})"
        what = f"images of shape {shape}, on which the threshold was set"
        expect(tuple(x.shape[1:]) == self.shape, what, tuple(x.shape), do="resize them")
        with _precise(x), torch.no_grad():
            logits, score = logits_and_score(self.detector, x)
            return Decision(logits.argmax(dim=1), score, score <= self.threshold)

    def to(self, device: str | torch.device) -> "Guard":
        """Move network and detector to a device; returns the guard itself."""
        self.detector.to(device)
        return self

    def save(self, folder: str | Path) -> str:
        """Write the guard into a folder; returns the SHA-256 of its content."""
        from rood.guard.disk import save

        return save(self, Path(folder))

    @staticmethod
    def load(
        folder: str | Path, *, model: nn.Module | Sequence[nn.Module] | None = None
    ) -> "Guard":
        """Load a guard that `save` or `rood fit` wrote, on the CPU. Executes nothing from it.

        Parameters
        ----------
        folder : str or Path
        model : nn.Module or sequence of nn.Module, optional
            The network, if the folder contains only its hash; several for an ensemble.

        Returns
        -------
        Guard

        Raises
        ------
        CheckpointError
            If a file is missing, damaged or changed.
        CapabilityError
            If the network is needed and not given, or another one is given.

        Examples
        --------
        >>> import rood, tempfile
        >>> from rood import data
        >>> from rood.detectors import MSP
        >>> images = data.load("procedural:blobs,n=100", shape=(1, 28, 28))
        >>> guard = rood.Guard.calibrated(MSP(rood.zoo.load("digits-ce")), images.batches(50))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sha256 = guard.save(folder)
        ...     again = rood.Guard.load(folder)
        >>> again.threshold == guard.threshold
        True
        """
        from rood.guard.disk import load

        given = [] if model is None else [model] if isinstance(model, nn.Module) else list(model)
        return load(Path(folder), given)

    def export(self, path: str | Path) -> None:
        """Write the graph from pixels to logits, score and accept as .onnx or .pt2."""
        from rood.guard.export import export

        export(self, Path(path))


def logits_and_score(detector: Detector, x: Images) -> tuple[Logits, Scores]:
    """The network's logits and the score, in one forward pass if possible; x is not checked."""
    if isinstance(detector, LowResolution):  # its network takes enlarged images
        return logits_and_score(detector.base, detector._resized(x))
    if isinstance(detector, OutputDetector):
        out = detector.model(x, detector.taps)
        return out.logits, detector.score_outputs(out).to(x.dtype)
    return detector.model(detector.seen(x)).logits, detector.score_images(x)


def _make_contiguous(detector: Detector) -> None:
    """Lay out the fitted state as after loading: the last bit of BLAS depends on strides."""
    state = detector.eval().fitted_state()
    detector.load_fitted({name: value.contiguous() for name, value in state.items()})


def _precise(x: Images) -> Any:
    """No TF32: scores are compared with a threshold."""
    return full_precision() if x.is_cuda else nullcontext()
