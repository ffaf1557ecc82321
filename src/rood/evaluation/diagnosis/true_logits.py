"""Does the network return logits?"""

from collections.abc import Iterator

from rood.evaluation.diagnosis.base import Diagnosis, NetworkCheck, Setup, Subject


class TrueLogits(NetworkCheck):
    """Logits are finite, on both sides of 0 or above 1, and differ between images.

    Probabilities of a softmax and their logarithms are found when the network is loaded.
    """

    place = 3

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        z = subject.logits
        low, high = float(z.min()), float(z.max())
        if not bool(z.isfinite().all()):
            yield self.fail("expected finite logits, got NaN or infinity", "check the weights")
        elif low >= 0 and high <= 1:
            yield self.warn(
                f"expected logits, got values from {low:.3g} to {high:.3g}",
                "if these are probabilities of a sigmoid, wrap the network without it",
                subject.name,
            )
        elif len(z) > 1 and bool((z == z[0]).all()):
            yield self.fail(
                f"expected logits that depend on the image, got the same for {len(z)} images",
                "check the weights and --mean and --std",
                subject.name,
            )
        else:
            yield self.ok(f"logits from {low:.3g} to {high:.3g}", subject.name)
