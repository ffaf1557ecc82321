"""Do mean and std fit the network?"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from rood.evaluation.diagnosis.base import (
    FEW,
    Diagnosis,
    NetworkCheck,
    Setup,
    Subject,
    percent,
    surely_better,
)
from rood.models.model import Model
from rood.shapes import Images

# what else the images may have been in training: mean and std of pixels in [0, 1]
COMMON = {
    "--mean 0 --std 1": (0.0, 1.0),
    "--mean 0.5 --std 0.5": (0.5, 0.5),
    "--mean 0 --std 0.00392157 (pixels from 0 to 255)": (0.0, 1 / 255),
}
GREY = {"--mean 0.1307 --std 0.3081 (MNIST)": (0.1307, 0.3081)}
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COLOUR = {
    "--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 (ImageNet)": IMAGENET,
    "--mean 0.4914,0.4822,0.4465 --std 0.2470,0.2435,0.2616 (CIFAR-10)": (
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    ),
}
UNSURE = 0.5  # mean confidence of a network that does not recognise what it sees


class Normalised(NetworkCheck):
    """Accuracy under the mean and std given, and under common ones; without labels, confidence."""

    place = 6

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        some = subject.some.thin(FEW)
        others = dict(_readings(subject.model, some.shape[0]))
        logits = {name: subject.outputs(some, seen) for name, seen in others.items()}
        own = subject.outputs(some)
        if subject.labelled:
            yield self._by_accuracy(subject, own, logits)
        else:
            yield self._by_confidence(subject, own, logits)

    def _by_accuracy(self, subject: Subject, own: Tensor, others: dict[str, Tensor]) -> Diagnosis:
        some = subject.some.thin(FEW)
        right = {name: subject.right_of(some, z) for name, z in others.items()}
        now, best = subject.right_of(some, own), max(right, key=lambda name: right[name].mean())
        if not surely_better(right[best], now, len(right)):
            found = f"accuracy {percent(now)} with the mean and std given"
            return self.ok(f"{found}, {percent(right[best])} at most with others", subject.name)
        return self.fail(
            f"expected the mean and std of the network's training, got accuracy {percent(now)} "
            f"with those given and {percent(right[best])} with {best}",
            f"give {best}",
            subject.name,
        )

    def _by_confidence(self, subject: Subject, own: Tensor, others: dict[str, Tensor]) -> Diagnosis:
        sure = {n: float(z.softmax(1).amax(1).mean()) for n, z in others.items()}
        now, best = float(own.softmax(1).amax(1).mean()), max(sure, key=lambda name: sure[name])
        found = f"mean confidence {now:.2f} with the mean and std given"
        if now < UNSURE and sure[best] > now + 0.3:
            found += f" and {sure[best]:.2f} with {best}"
            return self.warn(found, f"is {best} what it was trained with?", subject.name)
        return self.ok(found, subject.name)


def _readings(model: Model, channels: int) -> Iterator[tuple[str, Callable[[Images], Images]]]:
    """Other ways to show the network the same images, as images that it then normalises."""
    for name, (mean, std) in (COMMON | (GREY if channels == 1 else COLOUR)).items():
        new = [torch.tensor(v).view(1, -1, 1, 1).to(model.mean) for v in (mean, std)]
        if any(bool((a - b).abs().max() > 1e-3) for a, b in zip(new, _own(model), strict=True)):
            yield name, lambda x, m=new[0], s=new[1]: model.mean + model.std * (x - m) / s  # type: ignore[misc]
    if channels == 3:
        yield "channels in the order BGR", lambda x: x.flip(1)


def _own(model: Model) -> tuple[Tensor, Tensor]:
    return model.mean, model.std
