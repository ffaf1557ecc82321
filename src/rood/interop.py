"""Detectors of other libraries as detectors of rood, so that they can be audited and attacked.

    knn = from_pytorch_ood(pytorch_ood.detector.KNN(features(model), k=50)).fit(batches)
    ash = from_openood(ASHPostprocessor(config), model).fit(batches)

Their scores are taken as they are. Many cut the gradient. Where a method is only decorated with
torch.no_grad, the decorator is removed; where the gradient is cut inside, `gradient` says "none"
after fit(): attack such a score with `WorstOf`, or with an attack without gradients.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rood.detectors.base import Detector, Gradient
from rood.errors import CapabilityError, InputError
from rood.models.model import Model
from rood.shapes import Batches, Features, Images, Logits, Scores

__all__ = [
    "Bridge",
    "View",
    "features",
    "from_openood",
    "from_pytorch_ood",
    "logits",
]


def __dir__() -> list[str]:
    return __all__


MARKS = 16  # training images whose scores stand for what was learnt


class View(nn.Module):
    """One output of a `Model` as a network: pixels in [0, 1] in, a tensor out."""

    def __init__(self, model: Model, output: str) -> None:
        super().__init__()
        self.model = model
        self.output = output

    def forward(self, x: Images) -> Logits | Features:
        return getattr(self.model(x), self.output)


def logits(model: Model) -> View:
    """The network as other libraries take it: pixels in [0, 1] in, logits out.

    Examples
    --------
    >>> net = rood.interop.logits(rood.zoo.load("digits-ce"))
    >>> net(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 6])
    """
    return View(model, "logits")


def features(model: Model) -> View:
    """The encoder as other libraries take it: pixels in [0, 1] in, features out.

    Examples
    --------
    >>> encoder = rood.interop.features(rood.zoo.load("digits-ce"))
    >>> encoder(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 64])
    """
    return View(model, "features")


class Bridge(Detector):
    """s(x) = the score of another library's detector, turned so that higher means more OOD."""

    gradient: ClassVar[Gradient] = "almost_everywhere"

    mark_: Float[Tensor, " n"]  # scores of the first training images: another fit, another mark

    def __init__(
        self,
        model: Model,
        says: Callable[[Images], Tensor],
        learns: Callable[[Batches], object],
        *,
        name: str,
    ) -> None:
        super().__init__(model)
        self._says = says
        self._learns = learns
        self.name = name

    def fit_images(self, batches: Batches) -> None:
        with torch.enable_grad():
            self._learns(batches)
        x = next(iter(batches))[0][:MARKS]
        self.mark_ = self.score_images(x).detach()
        with torch.enable_grad():
            alive = self.score_images(x.clone().requires_grad_()).requires_grad
        self.gradient = "almost_everywhere" if alive else "none"  # type: ignore[misc]

    def score_images(self, x: Images) -> Scores:
        # a copy: some detectors write into their input
        scores = self._says(x.clone())
        if scores.numel() != len(x):
            raise CapabilityError(
                f"expected one score per image from {self.name}, got {tuple(scores.shape)}"
            )
        return scores.reshape(len(x)).to(x)


def from_pytorch_ood(detector: Any) -> Bridge:
    """A detector of pytorch-ood, built on `logits(model)` or `features(model)`.

    Examples
    --------
    >>> class Largest:  # stands for a detector of pytorch-ood
    ...     requires_fit = False
    ...
    ...     def __init__(self, net):
    ...         self.net = net
    ...
    ...     def predict(self, x):
    ...         return -self.net(x).amax(dim=1)
    >>> net = rood.interop.logits(rood.zoo.load("digits-ce"))
    >>> x = torch.rand(2, 1, 28, 28)
    >>> bridge = rood.interop.from_pytorch_ood(Largest(net)).fit([(x, torch.zeros(2).long())])
    >>> bridge.gradient
    'almost_everywhere'
    """
    name = type(detector).__name__
    if not callable(getattr(detector, "predict", None)):
        raise InputError(f"expected a detector of pytorch-ood, with predict(), got {name}")
    views = [v for v in vars(detector).values() if isinstance(v, View)]
    if not views:
        raise InputError(
            f"expected {name} to be built on logits(model) or features(model) of rood.interop, "
            "which take pixels in [0, 1]"
        )
    model = views[0].model

    def learn(batches: Batches) -> None:
        if getattr(detector, "requires_fit", True) and hasattr(detector, "fit"):
            asks = "device" in inspect.signature(detector.fit).parameters
            detector.fit(_Loader(batches), **({"device": model.mean.device} if asks else {}))

    return Bridge(model, _unwrapped(detector, "predict"), learn, name=name)


def from_openood(postprocessor: Any, model: Model) -> Bridge:
    """A postprocessor of OpenOOD, whose confidence is higher for in-distribution images.

    Examples
    --------
    >>> class Largest:  # stands for a postprocessor of OpenOOD
    ...     def setup(self, net, id_loader_dict, ood_loader_dict): ...
    ...
    ...     def postprocess(self, net, data):
    ...         logits = net(data)
    ...         return logits.argmax(dim=1), logits.amax(dim=1)
    >>> model, x = rood.zoo.load("digits-ce"), torch.rand(2, 1, 28, 28)
    >>> bridge = rood.interop.from_openood(Largest(), model).fit([(x, torch.zeros(2).long())])
    >>> torch.equal(bridge.score(x), rood.detectors.MaxLogit(model).score(x))
    True
    """
    name = type(postprocessor).__name__
    if not callable(getattr(postprocessor, "postprocess", None)):
        raise InputError(f"expected a postprocessor of OpenOOD, with postprocess(), got {name}")
    net = _OpenOODNet(model)
    postprocess = _unwrapped(postprocessor, "postprocess")

    def learn(batches: Batches) -> None:
        loader = _Loader(batches, as_dict=True)
        postprocessor.setup(net, {"train": loader, "val": loader, "test": loader}, {})

    return Bridge(model, lambda x: -postprocess(net, x)[1], learn, name=name)


class _Loader:
    """Batches in the form that the other library goes through, as often as it likes."""

    def __init__(self, batches: Batches, *, as_dict: bool = False) -> None:
        self.batches = batches
        self.as_dict = as_dict

    def __iter__(self) -> Iterator[Any]:
        for x, y in self.batches:
            yield {"data": x, "label": y} if self.as_dict else (x, y)


class _OpenOODNet(nn.Module):
    """A `Model` with the methods that postprocessors of OpenOOD call on a network."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    @property
    def fc(self) -> nn.Linear:
        return self.model.head

    def forward(self, x: Images, return_feature: bool = False) -> Any:
        out = self.model(x)
        return (out.logits, out.features) if return_feature else out.logits

    def forward_threshold(self, x: Images, threshold: float) -> Logits:
        return self.fc(self.model(x).features.clamp(max=threshold))

    def get_fc(self) -> tuple[Any, Any]:
        weight, bias = self.fc.weight, self.fc.bias
        return weight.detach().cpu().numpy(), bias.detach().cpu().numpy()

    def get_fc_layer(self) -> nn.Linear:
        return self.fc


def _unwrapped(owner: Any, name: str) -> Callable[..., Any]:
    """A method without the decorators around it, of which torch.no_grad cuts the gradient."""
    function = getattr(type(owner), name, None)
    if function is None:
        return getattr(owner, name)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return lambda *arguments: function(owner, *arguments)
