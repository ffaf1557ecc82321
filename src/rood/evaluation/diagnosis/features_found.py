"""Was the linear head found, whose input are the features?"""

from collections.abc import Iterator

from rood.evaluation.diagnosis.base import Diagnosis, NetworkCheck, Setup, Subject


class FeaturesFound(NetworkCheck):
    """The layer whose output are the logits; without it there are no features."""

    place = 2

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        model = subject.model
        if subject.card.get("logits_only"):  # the card's notes say why
            yield self.ok("no features: detectors of the logits only", subject.name)
            return
        name = next((n for n, m in model.net.named_modules() if m is model.head), "?")
        sizes = f"{model.head.in_features} features, {model.classes} classes"
        yield self.ok(f"the head is {name!r}: {sizes}", subject.name)
