"""Which network was loaded, and what does its source say about it?"""

from collections.abc import Iterator

from rood.evaluation.diagnosis.base import Diagnosis, NetworkCheck, Setup, Subject


class Loaded(NetworkCheck):
    """Size, classes and normalisation of the network; what had to be guessed about it."""

    place = 1

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        model = subject.model
        weights = sum(p.numel() for p in model.parameters())
        size = "x".join(map(str, subject.images.shape))
        mean, std = (", ".join(f"{v:.3g}" for v in t.flatten()) for t in (model.mean, model.std))
        yield self.ok(
            f"{weights:,} weights, {model.classes} classes, images {size}, mean {mean}, std {std}",
            subject.name,
        )
        for note in subject.card.get("notes", ()):
            yield self.warn(note, "", subject.name)
