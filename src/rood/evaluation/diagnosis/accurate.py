"""Does the network know the ID images?"""

from collections.abc import Iterator

from rood.evaluation.diagnosis.base import Diagnosis, NetworkCheck, Setup, Subject
from rood.metrics import share_of

NEAR = 0.1  # of the way from chance to perfect: what still counts as near chance


class Accurate(NetworkCheck):
    """Accuracy on labelled ID images: a network that guesses cannot be audited."""

    place = 7

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        if not subject.labelled:
            return
        n, chance = len(subject.right), 1 / subject.model.classes
        right, low, high = share_of(subject.right)
        found = f"accuracy {right:.3f} [{low:.3f}, {high:.3f}] on {n} labelled images"
        if right <= chance + NEAR * (1 - chance):
            found += f" is near chance, {chance:.3f}"
            do = (
                "wrong --mean or --std, another order of the class folders, "
                "or images that the network was not trained for?"
            )
            # without an attack the run is short, and its rows say the same
            wrong = self.fail if setup.threats else self.warn
            yield wrong(found, do, subject.name)
        else:
            yield self.ok(found, subject.name)
