"""Accept or reject: a classifier, a fitted detector and a threshold of known false alarms."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from rood.data.base import Shape
from rood.detectors.base import Detector, check_images
from rood.errors import InputError
from rood.evaluation.manifest import full_precision
from rood.guard.calibration import Calibration, calibrate
from rood.guard.judge import judge
from rood.models.model import Model
from rood.shapes import Batches, Images, Labels, Scores


class Decision(NamedTuple):
    """What a guard says of each image."""

    label: Labels  # the class that the network gives it
    score: Scores  # higher = more out of distribution
    accept: Bool[Tensor, " b"]  # the score is at most the threshold; never for NaN


@dataclass(frozen=True, eq=False)
class Guard:
    """`label, score, accept = guard(x)` for images in [0, 1] of the calibrated shape."""

    detector: Detector  # fitted
    calibration: Calibration
    shape: Shape  # of the images: channels, height, width
    classes: tuple[str, ...] = ()  # their names; empty where they have none
    about: Mapping[str, Any] = field(default_factory=dict)  # where it comes from; JSON can hold it

    def __post_init__(self) -> None:
        _settle(self.detector)
        if self.classes and len(self.classes) != self.model.classes:
            raise InputError(
                f"expected {self.model.classes} names, one for each class of the network, "
                f"got {len(self.classes)}"
            )

    @classmethod
    def calibrated(
        cls,
        detector: Detector,  # fitted
        batches: Batches,  # in-distribution (x, y) that neither network nor detector has seen
        *,
        rate: float = 0.05,  # of false alarms
        classes: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
    ) -> "Guard":
        """A guard whose threshold rejects at most a share `rate` of images like these."""
        _settle(detector)
        scores: list[Tensor] = []
        shapes: set[Shape] = set()
        for x, _ in batches:
            check_images(x, detector.model)
            shapes.add((x.shape[1], x.shape[2], x.shape[3]))
            with _precise(x), torch.no_grad():
                scores.append(judge(detector, x)[1].double().cpu())
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
        check_images(x, self.model)
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(
                f"expected images of shape (b, {', '.join(map(str, self.shape))}), on which the "
                f"threshold was set, got {tuple(x.shape)}: resize them"
            )
        with _precise(x), torch.no_grad():
            logits, score = judge(self.detector, x)
            return Decision(logits.argmax(dim=1), score, score <= self.threshold)

    def to(self, device: str | torch.device) -> "Guard":
        """The same guard, its network and detector moved to a device."""
        self.detector.to(device)
        return self

    def save(self, folder: str | Path) -> str:
        """Write the guard into a folder; returns the hash over all that was written."""
        from rood.guard.disk import save

        return save(self, Path(folder))

    @staticmethod
    def load(
        folder: str | Path, *, model: nn.Module | Sequence[nn.Module] | None = None
    ) -> "Guard":
        """The guard in a folder, on the CPU, after every check; nothing in it is executed.

        model: the network, where the folder has its hash alone; several for an ensemble of several.
        """
        from rood.guard.disk import load

        given = [] if model is None else [model] if isinstance(model, nn.Module) else list(model)
        return load(Path(folder), given)

    def export(self, path: str | Path) -> None:
        """The whole graph, pixels to logits, score and accept, as .onnx or .pt2."""
        from rood.guard.export import export

        export(self, Path(path))


def _settle(detector: Detector) -> None:
    """Lay out what was learnt as it will be once loaded: BLAS rounds by layout, in the last bit."""
    state = detector.eval().fitted_state()
    detector.load_fitted({name: value.contiguous() for name, value in state.items()})


def _precise(x: Images) -> Any:
    """Scores are compared with a threshold, so that TF32 must not blur them."""
    return full_precision() if x.is_cuda else nullcontext()
