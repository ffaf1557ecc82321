"""The figures of the page, one per file, in the order in which they appear."""

from rood.evaluation.store import Contents
from rood.report.figures import eps, fall, radius, scores
from rood.report.figures.base import Figure
from rood.report.numbers import Numbers

__all__ = ["Figure", "figures"]


def figures(folder: Contents, numbers: Numbers) -> list[Figure]:
    """Every figure; one without numbers has no drawing."""
    drawn = [fall.figure(numbers), eps.figure(numbers), scores.figure(folder, numbers)]
    return [*drawn, radius.figure(folder, numbers)]
