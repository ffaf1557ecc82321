"""Were the OOD images resized in another way than the ID images?"""

from collections.abc import Iterator

from rood.data.contamination import resizing
from rood.evaluation.diagnosis.base import Diagnosis, Setup, SetupCheck


class ResizingArtefacts(SetupCheck):
    """Fine detail and repeated columns, which tell enlarged from shrunk images."""

    place = 10

    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        for name, images in setup.outside.items():
            found = resizing(setup.ours, images)
            for sentence in found:
                yield self.warn(sentence, "", name)
            if not found:
                yield self.ok("as much fine detail as the ID images", name)
