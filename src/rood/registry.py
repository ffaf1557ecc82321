"""The folder is the registry: `detectors/knn.py` holds the detector called "knn".

A file holds exactly one public concrete class; the file's name is its registry name. A class whose
constructor needs more than the file's name can tell has named constructors instead, marked with
`@named("pro_msp")`, and is registered under those alone. Files called `base`, starting with "_"
or named in `beside` are not entries. Only what is asked for is imported.
"""

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from rood.errors import RoodError, UnknownNameError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SOURCE = re.compile(r"arXiv:\d{4}\.\d{4,5}|(?:doi|openreview|thecvf):[^\s,;)]+[^\s,;).]")


def named(*names: str) -> Callable[[F], F]:
    """Mark a class method as the constructor called `names` in the registry."""

    def mark(constructor: F) -> F:
        constructor.registry_names = names  # type: ignore[attr-defined]
        return constructor

    return mark


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f": did you mean {close[0]!r}?" if close else f": expected one of {', '.join(known)}"
    return UnknownNameError(f"no {kind} is called {name!r}{hint}")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """The classes of one folder, by file name."""

    package: str  # its dotted name
    base: type[T]
    beside: tuple[str, ...] = ()  # public modules of the folder that hold no entry

    @cached_property
    def files(self) -> tuple[str, ...]:
        path = importlib.import_module(self.package).__path__
        found = (m.name for m in pkgutil.iter_modules(path))
        return tuple(sorted(n for n in found if n[0] != "_" and n not in ("base", *self.beside)))

    @cached_property
    def _entries(self) -> dict[str, Callable[..., T]]:
        entries: dict[str, Callable[..., T]] = {}
        for file in self.files:
            cls = self.cls(file)
            entries |= dict(_constructors(cls)) or {file: cls}
        return dict(sorted(entries.items()))

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        return list(self._entries)

    def get(self, name: str) -> Callable[..., T]:
        """The class or named constructor registered under `name`."""
        if name in self.files and not list(_constructors(self.cls(name))):
            return self.cls(name)
        if name not in self._entries:
            raise unknown(self.base.__name__.lower(), name, self._entries)
        return self._entries[name]

    def cls(self, file: str) -> type[T]:
        """The one public class of a file."""
        module = importlib.import_module(f"{self.package}.{file}")
        found = [c for c in vars(module).values() if self._is_entry(c, module.__name__)]
        if len(found) != 1:
            names = ", ".join(c.__name__ for c in found) or "none"
            kind = self.base.__name__
            raise RoodError(f"expected one public {kind} in {module.__name__}, found {names}")
        return found[0]

    def public_names(self) -> list[str]:
        """Names that the package offers, read from its generated stub: no entry is imported."""
        stub = Path(str(importlib.import_module(self.package).__file__)).with_suffix(".pyi")
        return sorted({*re.findall(r"import (\w+) as", stub.read_text()), "registry"})

    def by_class_name(self, name: str) -> type[T]:
        """The class called `name`; its file is guessed first, so that one import is enough."""
        flat = name.lower()
        likely_first = sorted(self.files, key=lambda f: f.replace("_", "") != flat)
        # a name that no class can have must not import the whole folder to be refused
        for file in likely_first if name[:1].isupper() else ():
            if (cls := self.cls(file)).__name__ == name:
                return cls
        raise AttributeError(f"module {self.package!r} has no attribute {name!r}")

    def _is_entry(self, c: object, module: str) -> bool:
        return (
            inspect.isclass(c)
            and issubclass(c, self.base)
            and c.__module__ == module
            and not inspect.isabstract(c)
            and not c.__name__.startswith("_")
        )


def _constructors(cls: type[T]) -> Iterator[tuple[str, Callable[..., T]]]:
    for attribute in vars(cls).values():
        function = getattr(attribute, "__func__", attribute)
        for name in getattr(function, "registry_names", ()):
            yield name, getattr(cls, function.__name__)


def paper(thing: object) -> str:
    """The first source in a docstring, such as "arXiv:1610.02136"; empty where there is none."""
    found = SOURCE.search(inspect.getdoc(thing) or "")
    return found.group() if found else ""
