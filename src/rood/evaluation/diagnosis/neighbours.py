"""Are there enough fitting images for the neighbours that a detector looks at?"""

from collections.abc import Iterator

from rood.detectors import KNN
from rood.evaluation.diagnosis.base import Diagnosis, Setup, SetupCheck


class Neighbours(SetupCheck):
    """k of KNN against the fitting images of one class.

    From as many on, the k-th neighbour of an ID image is one of another class, as far away as those
    of an OOD image.
    """

    place = 12

    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        for name, detector in next(iter(setup.detectors.values()), {}).items():
            for knn in (m for m in detector.modules() if isinstance(m, KNN)):
                fitted = 0 if knn.bank_ is None else len(knn.bank_)
                n = len(setup.fit) if setup.fit is not None else fitted
                each = n // knn.model.classes
                if n and knn.k >= each:
                    yield self.warn(
                        f"k = {knn.k} neighbours of {n} fitting images, about {each} per class",
                        f"set k = {max(1, each // 4)} or fit it on more images (--train)",
                        name,
                    )
                elif n:
                    yield self.ok(f"k = {knn.k} of about {each} fitting images per class", name)
