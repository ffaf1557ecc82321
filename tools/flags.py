"""docs/understand/flags.md, from the checks themselves."""

import inspect
import math
import textwrap

from rood.evaluation.checks import Check, checks
from rood.evaluation.checks.base import LEVEL, TESTS
from rood.evaluation.probes import CONTROLS, DRAWS, FEW, QUERIES

HEAD = f"""# Flags: may an attacked number be believed?

A robust-looking number is often the result of a weak attack. After every attack, `rood audit` checks the
attack itself and writes one row per check: `metric` is `flag_` and a name below, `value` is the evidence,
`verdict` is `pass`, `warn` or `fail`. The verdict of an attacked number is the worst of its flags. Where
both sides were attacked, each flag is that of the worse side.

- **fail**: do not publish the number. Unless it is at 0.5 or below already, treat the detector as untested.
- **warn**: read the number as an upper bound.
- **pass**: the known signs of a weak attack were looked for and not found. This is no proof.

Most checks use {CONTROLS} evenly spaced control images per attacked set (gradients at the clean image, budget and
surrogates use all images), at every eps; random search draws {QUERIES} points per image. The expensive ones,
`black_box_gains`, `more_steps_gain` and `far_from_zero`, use {FEW} of these images, once per set and norm, at the
largest eps. Where an image is done at a fixed value (`Goal.enough`), what lies beyond it counts neither for nor
against an attack. A folder written by an older rood lacks the rows of newer checks: an absent flag was not
checked, which is not a pass.

The attacked number is the lowest that anything found: the attack, its images rounded to 8 bits, random search,
and the attacks that continue it. Checks compare what the attack alone reached.

Where a limit is marked *, the share must exceed it significantly: exact binomial test at {LEVEL} / {TESTS}, the
level of one row divided by the tests that may be made for it. So one of {CONTROLS} images raises no alarm. No check
depends on the unit of a score: s and a s + b are judged alike for a > 0, and infinite scores of a few images change
nothing for the others. A detector that declares itself `stochastic` is judged by means over {DRAWS} calls, clean and
attacked.

To add a check, add one file to `src/rood/evaluation/checks/`; this page is generated from that folder.

| check | warns above | fails above | finding |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    table = "".join(
        f"| [`{c.name}`](#{c.name}) | {_limit(c, c.warn)} | {_limit(c, c.fail)} | {c.wording.title} |\n"
        for c in checks()
    )
    return HEAD + table + "".join(map(_section, checks()))


def _section(check: Check) -> str:
    measured, *details = inspect.cleandoc(type(check).__doc__ or "").split("\n\n")
    above = "significantly above" if check.tested else "above"
    limits = f"Warns {above} {check.warn:g}, " + (
        f"fails {above} {check.fail:g}." if math.isfinite(check.fail) else "never fails."
    )
    said = [f"**Means**: {check.wording.meaning}", f"**Do**: {check.wording.advice}"]
    how = [f"{measured} {limits}", *details]
    fold = ["<details><summary>How it is measured</summary>", *map(_wrapped, how), "</details>"]
    return "\n".join(["", f"## {check.name}", "", "\n\n".join([*map(_wrapped, said), *fold]), ""])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 105, break_on_hyphens=False)


def _limit(check: Check, value: float) -> str:
    return f"{value:g}{'*' * check.tested}" if math.isfinite(value) else "never"
