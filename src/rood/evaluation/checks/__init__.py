"""Checks of an attack, one per file: may an attacked number be believed? No file imports torch."""

from collections.abc import Iterable
from functools import cache

from rood.evaluation.checks.base import VERDICTS, Case, Check, Flag, Verdict
from rood.registry import Registry

registry: Registry[Check] = Registry(__name__, Check)

__all__ = ["Case", "Check", "Flag", "checks", "flags", "registry", "worst"]


@cache
def checks() -> tuple[Check, ...]:
    """Every check, in the order of the rows."""
    found = [registry.get(name)() for name in registry.names()]
    return tuple(sorted(found, key=lambda check: check.place))


def flags(case: Case) -> list[Flag]:
    """The flags of all checks that apply to this case."""
    return [flag for check in checks() if (flag := check.flag(case))]


def worst(found: Iterable[Flag]) -> Verdict:
    """The verdict on an attack: the worst of its flags."""
    return max((flag.verdict for flag in found), key=VERDICTS.index, default="pass")
