"""The contract every detector keeps.

A detector maps images in [0, 1] to one score each; **higher means more OOD**.

              from images      from the model's outputs
    fit       fit_images       start, see, finish
    score     score_images     score_outputs
    bound     bounds_around    bounds_from

Almost every detector is an `OutputDetector` and overrides the right-hand column: its score is a
formula of logits and features, so that many share one forward pass (`fit_all`, `score_all`). Only
those that need the pixels themselves (ODIN, PRO) override the left. Fitted values are declared as
annotations ending in "_"; buffers, the not-fitted error, saving and loading follow from those.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rood.data.given import AnyBatches
from rood.errors import CapabilityError, InputError, NotFittedError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.shapes import Batches, Images, Labels, Scores

D = TypeVar("D", bound="Detector")  # not typing.Self: beartype refuses it on methods
ScoreFunction = Callable[[Images], Scores]
Gradient = Literal["exact", "almost_everywhere", "surrogate", "none"]
Part = Literal["logits", "features", "head", "forms"]


class OutputBox(NamedTuple):
    """Bounds of what a forward pass gives, entry by entry, in float64."""

    logits: Box
    features: Box
    head: Box | None = None
    forms: Box | None = None  # of the features' products with `OutputDetector.forms`, (b, m)


class Detector(nn.Module, ABC):
    """One score per image, higher = more OOD, unsaturated, differentiable in the pixels.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> batches = [(torch.rand(60, 1, 28, 28), torch.zeros(60).long())]
    >>> knn = rood.detectors.KNN(model, k=5).fit(batches)
    >>> knn
    KNN(k=5, fitted)
    >>> knn.score(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2])
    """

    gradient: ClassVar[Gradient] = "exact"
    stochastic: ClassVar[bool] = False  # True: two calls may differ, attack the expectation
    needs_labels: ClassVar[bool] = False  # True: fit() needs the classes of the training images
    same_pixels: ClassVar[bool] = True  # False: inner detectors see other images, such as resized

    fitted_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        own = [n for n in inspect.get_annotations(cls) if n.endswith("_") and not n.startswith("_")]
        cls.fitted_names = (*cls.fitted_names, *own)

    def __init__(self, model: Model) -> None:
        super().__init__()
        if not isinstance(model, Model):
            raise InputError(
                f"expected a Model for {type(self).__name__}, got {type(model).__name__}: "
                "rood.wrap(net, mean=(...), std=(...)) makes one"
            )
        self.model = model
        for name in self.fitted_names:
            self.register_buffer(name, None)

    @final
    def score(self, x: Images) -> Scores:
        """How far out of distribution each image is. Differentiable with respect to x."""
        self.check_fitted()
        check_images(x, self.model)
        return self.score_images(x)

    def forward(self, x: Images) -> Scores:
        """`detector(x)` is `detector.score(x)`."""
        return self.score(x)

    @final
    def fit(self: D, batches: AnyBatches) -> D:
        """Fit from scratch on ID images: batches (x, y), or any form that `rood.audit` takes."""
        from rood.detectors._together import fit_all

        fit_all([self], batches)
        return self

    @abstractmethod
    def score_images(self, x: Images) -> Scores:
        """The score without the checks of `score`, for attacks and wrapping detectors."""

    def fit_images(self, batches: Batches) -> None:
        """Set every `name_` that is computed from pixels. Most detectors have none."""

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """Other functions for an attack to climb where the score has poor gradients."""
        return ()

    def seen(self, x: Images) -> Float[Tensor, "b c _ _"]:
        """The images as `model` gets them; a detector that resizes them overrides this."""
        first = next((inner for _, inner in self.inner()), None)
        return x if first is None else first.seen(x)

    def bounds_around(self, x: Images, inner: Callable[["Detector", Images], Box]) -> Box:
        """Bounds of the score near x; `inner` gives those of an inner detector near images."""
        raise self.no_bounds()

    @final
    def no_bounds(self) -> CapabilityError:
        """The error of a detector without bounds."""
        return CapabilityError(
            f"expected a detector whose score can be bounded, got {type(self).__name__}: take msp, "
            "energy, max_logit, head, mahalanobis, knn, ..."
        )

    def cost(self) -> tuple[int, int]:
        """Forward and backward passes of the network for one score."""
        return 1, 0

    @final
    def settings(self) -> dict[str, Any]:
        """Class and keyword arguments of the constructor, with those of inner detectors."""
        parameters = inspect.signature(type(self).__init__).parameters.values()
        own = {p.name: getattr(self, p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
        parts = {n: m.settings() for n, m in self.inner()}
        return {"class": type(self).__name__} | own | parts

    def __repr__(self) -> str:
        own = {k: v for k, v in self.settings().items() if k != "class"} | dict(self.inner())
        parts = [f"{name}={value!r}" for name, value in own.items()]
        if values := [getattr(self, name) for name in self.fitted_names]:
            parts.append("not fitted" if any(v is None for v in values) else "fitted")
        return f"{type(self).__name__}({', '.join(parts)})"

    @final
    def inner(self) -> Iterator[tuple[str, "Detector"]]:
        """The inner detectors, also those in lists, by name."""
        for name, child in self.named_children():
            if isinstance(child, Detector):
                yield name, child
            elif isinstance(child, nn.ModuleList):
                named = ((f"{name}.{i}", m) for i, m in enumerate(child))
                yield from ((n, m) for n, m in named if isinstance(m, Detector))

    @final
    def fitted_state(self) -> dict[str, Tensor]:
        """What fit() computed, without the model's weights; dotted names for inner detectors."""
        self.check_fitted()
        return {name: value for name, value in self._declared() if value is not None}

    @final
    def load_fitted(self: D, state: dict[str, Tensor]) -> D:
        """Restore what `fitted_state` gave."""
        if wrong := set(state) ^ {name for name, _ in self._declared()}:
            raise InputError(f"expected the fitted state of {type(self).__name__}, {wrong} differ")
        for key, value in state.items():
            part, _, name = key.rpartition(".")
            setattr(self.get_submodule(part), name, value.to(self.model.mean.device))
        return self

    @final
    def check_fitted(self) -> None:
        """Raise NotFittedError before fit()."""
        if missing := [name for name, value in self._declared() if value is None]:
            raise NotFittedError(
                f"{type(self).__name__} has no {', '.join(missing)} yet: call fit() first"
            )

    def _declared(self) -> Iterator[tuple[str, Tensor | None]]:
        for prefix, part in self.named_modules():
            if isinstance(part, Detector):
                for name in part.fitted_names:
                    yield f"{prefix}.{name}".lstrip("."), getattr(part, name)


class OutputDetector(Detector):
    """A detector whose score is a formula of one forward pass, so that many can share that pass."""

    taps: tuple[str, ...] = ()  # layers whose maps it needs, by name
    bounded: ClassVar[tuple[Part, ...]] = ()  # what `bounds_from` reads; none: no bounds

    @final
    def score_images(self, x: Images) -> Scores:
        return self.score_outputs(self.model(x, self.taps)).to(x.dtype)

    def choose_taps(self, x: Images) -> None:
        """Set `taps` from the first training images, where they depend on the network."""

    @abstractmethod
    def score_outputs(self, out: Outputs) -> Scores:
        """The formula. float64 where conditioning needs it; the caller casts back."""

    def forms(self) -> Float[Tensor, "m d"] | None:
        """Rows whose products with the features `bounds_from` reads, tighter bounded as a whole."""
        return None

    def bounds_from(self, out: OutputBox) -> Box:
        """Bounds of the score of every output within `out`, in float64."""
        raise self.no_bounds()

    def start(self) -> None:
        """Reset the statistics before the first `see`."""

    def see(self, out: Outputs, labels: Labels) -> None:
        """Add one training batch to the statistics; keep sums, not samples."""

    def finish(self) -> None:
        """Set every `name_` from the statistics."""


def check_images(x: Images, model: Model) -> None:
    """Refuse images that no detector can score: shape, device, dtype, channels, range."""
    if not isinstance(x, Tensor):
        raise InputError(f"expected images as a tensor (b, c, h, w), got {type(x).__name__}")
    if x.ndim != 4:
        raise InputError(f"expected images of shape (b, c, h, w), got {tuple(x.shape)}")
    if x.device != model.mean.device:
        raise InputError(
            f"expected images on {model.mean.device}, where the model is, got them on {x.device}: "
            "move one of them"
        )
    if x.dtype != model.mean.dtype:
        want, got = (str(t.dtype).removeprefix("torch.") for t in (model.mean, x))
        raise InputError(f"expected {want} images, as the model's weights are, got {got}: convert")
    channels = model.mean.shape[1]
    if channels > 1 and x.shape[1] != channels:
        raise InputError(
            f"expected images with {channels} channels, as the model's mean has, got {x.shape[1]}"
        )
    if x.numel() == 0:
        return
    low, high = (v.item() for v in torch.aminmax(x.detach()))
    if not (low >= 0 and high <= 1):  # written so that NaN is refused too
        raise InputError(
            f"expected pixels in [0, 1], got [{low:.3g}, {high:.3g}]: "
            "the model normalises, do not normalise first"
        )
