"""Are there enough images?"""

from collections.abc import Iterator

from rood.evaluation.diagnosis.base import Diagnosis, Setup, SetupCheck
from rood.evaluation.rows import SMALL


class SampleSizes(SetupCheck):
    """Images per set that are attacked: few give wide intervals."""

    place = 11

    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        sizes = {"inside": len(setup.inside)} | {k: len(v) for k, v in setup.outside.items()}
        sizes = {name: min(n, setup.limit or n) for name, n in sizes.items()}
        told = ", ".join(f"{n} in {name!r}" for name, n in sizes.items())
        if any(n < SMALL for n in sizes.values()):
            raise_it = setup.limit is not None and setup.limit < SMALL
            yield self.warn(
                f"small sample: expected {SMALL} images per set, got {told}",
                "raise --limit" if raise_it else "give more images, or read the intervals",
            )
        else:
            yield self.ok(f"images per set: {told}")
