"""docs/flags.md, from the checks themselves."""

import inspect
import math
import textwrap

from rood.evaluation.checks import Check, checks
from rood.evaluation.probes import CONTROLS, FEW, QUERIES

HEAD = f"""# Flags: may an attacked number be believed?

A robust-looking number is often the result of a weak attack. After every attack, `rood audit` checks the
attack itself and writes one row per check: `metric` is `flag_` and a name below, `value` is the evidence,
`verdict` is `pass`, `warn` or `fail`. The verdict of an attacked number is the worst of its flags. Where
both sides were attacked, each flag is that of the worse side.

- **fail**: do not publish the number. Unless it is at 0.5 or below already, treat the detector as untested.
- **warn**: read the number as an upper bound.
- **pass**: the known signs of a weak attack were looked for and not found. This is no proof.

Most checks use {CONTROLS} evenly spaced control images per attacked set (gradients, budget and surrogates use
all images), at every eps; random search draws {QUERIES} points per image. The two expensive ones, `more_steps_gain` and
`far_from_zero`, use {FEW} of these images, once per set and norm, at the largest eps. Together the checks add
about 5 % to the attacks of `make demo`, plus the random points. Where an image is done at a fixed
value (`Goal.enough`), what lies beyond it counts neither for nor against an attack. A folder written by an
older rood lacks the rows of newer checks: an absent flag was not checked, which is not a pass.

To add a check, add one file to `src/rood/evaluation/checks/`; this page is generated from that folder.

| check | warns above | fails above | finding |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    table = "".join(
        f"| [`{c.name}`](#{c.name}) | {c.warn:g} | {_limit(c.fail)} | {c.wording.title} |\n"
        for c in checks()
    )
    return HEAD + table + "".join(map(_section, checks()))


def _section(check: Check) -> str:
    measured, *details = inspect.cleandoc(type(check).__doc__ or "").split("\n\n")
    limits = f"Warns above {check.warn:g}, " + (
        f"fails above {check.fail:g}." if math.isfinite(check.fail) else "never fails."
    )
    parts = [
        f"**Measures**: {measured} {limits}",
        *details,
        f"**Means**: {check.wording.meaning}",
        f"**Do**: {check.wording.advice}",
    ]
    wrapped = "\n\n".join(textwrap.fill(part, 105, break_on_hyphens=False) for part in parts)
    return f"\n## {check.name}\n\n{wrapped}\n"


def _limit(value: float) -> str:
    return f"{value:g}" if math.isfinite(value) else "never"
