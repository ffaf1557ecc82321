"""Are the ID images OOD, and the OOD images ID?"""

from collections.abc import Iterator

from rood import metrics
from rood.data.base import ImageSet
from rood.evaluation.diagnosis.base import FEW, Diagnosis, NetworkCheck, Setup, Subject

KNOWN = 0.5  # accuracy from which a network knows the images
SURER = 0.25  # AUROC of the confidence below which the sides are probably swapped


class SwappedSides(NetworkCheck):
    """Whether the network knows the OOD images better than the ID images.

    By their labels, where they have some, else by the AUROC of the network's confidence.
    """

    place = 9

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        ours = subject.some.thin(FEW)
        sure = _unsure(subject, ours)
        for name, images in setup.outside.items():
            some = images.thin(FEW)
            theirs = _accuracy(subject, some)
            value = metrics.auroc(inside=sure, outside=_unsure(subject, some))
            do = "are --inside and --outside swapped?"
            if theirs > max(KNOWN, _accuracy(subject, ours)):
                found = f"{subject.name} gets {theirs:.2f} of these labelled OOD images right"
                yield self.warn(found, do, name)
            elif value < SURER and _accuracy(subject, ours) < KNOWN:
                found = (
                    f"{subject.name} is surer of these OOD images than of ID images: the AUROC of "
                    f"its confidence is {value:.2f}"
                )
                yield self.warn(found, do, name)
            else:
                yield self.ok(f"clean AUROC of the confidence {value:.2f} ({subject.name})", name)


def _unsure(subject: Subject, images: ImageSet) -> list[float]:
    sure: list[float] = subject.outputs(images).softmax(dim=1).amax(dim=1).tolist()
    return [-p for p in sure]


def _accuracy(subject: Subject, images: ImageSet) -> float:
    """On labelled images; 0 without labels."""
    if images.labels is None or not bool((images.labels >= 0).any()):
        return 0.0
    return float(subject.right_of(images, subject.outputs(images)).mean())
