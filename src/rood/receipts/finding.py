"""What a check of a receipt found."""

from dataclasses import dataclass
from typing import Literal

Tier = Literal["schema", "rescore", "reattack"]
TIERS: tuple[Tier, ...] = ("schema", "rescore", "reattack")
Status = Literal["pass", "fail", "open"]


@dataclass(frozen=True)
class Finding:
    """One check of one tier; a check that fails says in one sentence what is not true.

    Parameters
    ----------
    tier, check : str
        Which check of which tier.
    status : "pass", "fail" or "open"
        "open": nobody here can know, such as images or a network that only the issuer has.
    sentence : str
        What was found.
    """

    tier: Tier
    check: str
    status: Status
    sentence: str

    def __str__(self) -> str:
        return f"{self.tier} {self.check}: {self.status}: {self.sentence}"


class Refuted(Exception):
    """A receipt says something that is not true."""


class Lacking(Exception):
    """What is needed to check a receipt is not here."""
