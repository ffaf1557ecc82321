"""Are ID images among the OOD images?"""

from collections.abc import Iterator

from rood.data.contamination import duplicates, equal, resembles
from rood.evaluation.diagnosis.base import Diagnosis, Setup, SetupCheck

MOST = 0.5  # share of an OOD set that are ID images: more is a mistake, not contamination


class SameImages(SetupCheck):
    """Images on both sides: the same pixels, or the same picture resized or re-encoded."""

    place = 8

    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        for name, images in setup.outside.items():
            n = len(images)
            exact = equal(images, setup.ours)
            both = int((exact | resembles(images, setup.ours)).sum())
            if both > MOST * n:
                alike = "are" if int(exact.sum()) > MOST * n else "are, or look the same as,"
                yield self.fail(
                    f"expected other images for --outside than for --inside, got {both} of {n} in "
                    f"{name!r} that {alike} ID images too",
                    "give images of things that the network does not know",
                )
            for sentence in duplicates(setup.ours, images) if both and both <= MOST * n else ():
                yield self.warn(sentence, "", name)
            if not both:
                yield self.ok(f"none of {n} images is an ID image", name)
