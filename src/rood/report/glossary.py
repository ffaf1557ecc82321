"""The terms of the field that the page uses, each in a sentence or two."""

from typing import NamedTuple

from rood.report.outcomes import COIN_TOSS, HOLDS


class Term(NamedTuple):
    """A term and what it means."""

    name: str
    meaning: str


GLOSSARY = {
    "id": Term("ID", "In-distribution: images like those that the network was trained on."),
    "ood": Term(
        "OOD",
        "Out-of-distribution: everything else. A detector gives every image a score, higher for "
        "“more OOD”.",
    ),
    "auroc": Term(
        "AUROC",
        "The probability that an OOD image scores higher than an ID image. 1 is perfect, 0.5 is a "
        "coin toss, and at 0 the attacker has reversed the ranking. On this page a detector has "
        f"fallen at {COIN_TOSS} or below and holds at {HOLDS} or above.",
    ),
    "eps": Term(
        "L∞ and L2",
        "How far an attacker may go, in pixel units from 0 to 1. L∞ 8/255 ≈ 0.031: every pixel may "
        "change by at most 8 of 255 grey levels. L2 0.5: the Euclidean length of the whole change "
        "is at most 0.5.",
    ),
    "both": Term(
        "Both attacked",
        "An attacker makes OOD images look ID and ID images look OOD. With both sides attacked the "
        "AUROC is lowest: this is the number that decides.",
    ),
    "interval": Term(
        "95 % interval",
        "Were the audit repeated with other images, 95 % of such intervals would hold the true "
        "value. Fewer images make it wider; below 100 on a side the page says “small sample”.",
    ),
    "verdict": Term(
        "Verdict",
        "Whether the attack behind a number can be believed; it says nothing of the detector. "
        "pass: no check found a fault. warn: read the number as an upper bound. fail: do not "
        "believe it, a better attack may lower it.",
    ),
    "threshold": Term(
        "Threshold",
        "The score above which the detector rejects an image. It was set on clean ID images, of "
        "which it accepts 95 %, and stays there under attack.",
    ),
    "certified": Term(
        "Certified",
        "A proved lower bound: no attack within the budget brings the AUROC below it.",
    ),
}
