"""The errors that rood raises. The command prints each as one line and exits with code 1.

RoodError
 ├── NotFittedError    score() before fit()
 ├── InputError        an invalid argument: pixels, labels, shapes, numbers
 ├── UnknownNameError  a name that is in no registry
 ├── CapabilityError   something that the model or the installation does not support
 ├── ConfigError       a settings file with an unknown key or invalid value
 ├── DataError         images that are missing, empty or cannot be read
 ├── CheckpointError   a weights file that is missing, truncated, changed or not finite
 ├── ResultsError      an output folder that cannot be used
 ├── TrustError        code of somebody else would run
 └── BoundError        a score was found outside its certified bounds

A `RoodWarning` is a line on stderr; the command goes on.
"""


class RoodError(Exception):
    """Base class of all errors of rood."""


class NotFittedError(RoodError, ValueError):
    """score() was called before fit()."""


class InputError(RoodError, ValueError):
    """An argument is invalid."""


class UnknownNameError(RoodError, ValueError):
    """No such name in the registry."""


class CapabilityError(RoodError, TypeError):
    """The model or the installation does not support what was asked."""


class ConfigError(RoodError, ValueError):
    """A settings file has an unknown key or an invalid value."""


class DataError(RoodError, ValueError):
    """Images are missing, empty or cannot be read."""


class CheckpointError(RoodError, ValueError):
    """A weights file is missing, truncated, changed or not finite."""


class ResultsError(RoodError, RuntimeError):
    """An output folder cannot be used."""


class TrustError(RoodError, RuntimeError):
    """Code of somebody else would run, and the caller has not said that it may."""


class BoundError(RoodError, ArithmeticError):
    """A score was found outside its certified bounds: the certificate is wrong."""


class RoodWarning(UserWarning):
    """Something that the user should know; the command prints it as a note and goes on."""


def expect(holds: bool, what: str, *got: object, do: str = "") -> None:
    """Refuse an argument for which something does not hold: "expected WHAT, got GOT: DO"."""
    if not holds:
        *others, last = map(str, got)
        values = f"{', '.join(others)} and {last}" if others else last
        raise InputError(f"expected {what}, got {values}{': ' if do else ''}{do}")


def expect_trust(trust: bool, source: str, runs: str, do: str = "") -> None:
    """Refuse what runs code of others on this machine, unless the caller trusts its source."""
    if not trust:
        raise TrustError(
            f"expected --trust (trust=True in Python) for {source!r}, got none: {runs}, with all "
            f"your rights; give it if you know where this is from{', or ' if do else ''}{do}"
        )


def first_line(e: BaseException) -> str:
    """The first line of an error's message, or the name of its type if empty."""
    said = str(e).strip()
    return said.splitlines()[0] if said else type(e).__name__
