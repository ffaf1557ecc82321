"""How much of a paper's experiment is run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Counts of images and steps."""

    name: str
    images: int | None  # a side, with the attacks of the papers; None: all there are
    standard: int  # a side, with our suite
    fit: int | None  # to learn from
    most_steps: int | None  # of an attack; None: as many as the paper has

    def steps(self, n: int) -> int:
        """The paper's n steps, or as many as this size allows."""
        return n if self.most_steps is None else min(n, self.most_steps)


SIZES = {
    s.name: s
    for s in (
        Size("tiny", images=32, standard=4, fit=300, most_steps=3),
        Size("small", images=1000, standard=200, fit=5000, most_steps=None),
        Size("paper", images=None, standard=1000, fit=None, most_steps=None),
    )
}
