"""Every error rood raises on purpose. The command prints such an error as one line, exit code 1.

RoodError
 ├── NotFittedError    score() before fit()
 ├── InputError        an argument that breaks the stated contract: pixels, labels, shapes, numbers
 ├── UnknownNameError  a name that is in no registry
 ├── CapabilityError   something is asked of a model or an installation that it cannot give
 ├── ConfigError       a settings file with a key or value that means nothing here
 ├── DataError         images that are missing, empty or cannot be read
 ├── CheckpointError   a weights file that is missing, cut short, altered or not finite
 └── ResultsError      an output folder that cannot be used
"""


class RoodError(Exception):
    """Base class, so that callers can catch everything from here at once."""


class NotFittedError(RoodError, ValueError):
    """score() was called before fit()."""


class InputError(RoodError, ValueError):
    """The caller's argument does not meet the stated contract."""


class UnknownNameError(RoodError, ValueError):
    """No such name in the registry."""


class CapabilityError(RoodError, TypeError):
    """Something is needed that the model or the installation does not offer."""


class ConfigError(RoodError, ValueError):
    """A settings file has a key or value that means nothing here."""


class DataError(RoodError, ValueError):
    """Images are missing, empty or cannot be read."""


class CheckpointError(RoodError, ValueError):
    """A weights file is missing, cut short, altered or not finite."""


class ResultsError(RoodError, RuntimeError):
    """An output folder cannot be used."""


def first_line(e: BaseException) -> str:
    """What an error says, in one line; its type's name where it says nothing."""
    said = str(e).strip()
    return said.splitlines()[0] if said else type(e).__name__
