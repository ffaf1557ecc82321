"""docs/reference/api/*.md: what `dir(rood)` leads to, which Sphinx fills in from the docstrings."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import rood
from tools.markdown import texts

TEXT = texts("api")


def pages() -> Iterator[tuple[str, str]]:
    """Each page's name and text; a name stands on one page."""
    offered = {name: getattr(rood, name) for name in dir(rood) if name[0] != "_"}
    modules = {name: value for name, value in offered.items() if inspect.ismodule(value)}
    yield "index.md", TEXT["index"].format(modules="\n".join(modules))
    front = [f"rood.{name}" for name in offered if name not in modules]
    yield "rood.md", _page("rood", TEXT["rood"], front)
    seen = {id(pkgutil.resolve_name(name)) for name in front}
    for name, module in modules.items():
        names = [*_names(module), *TEXT["also"].get(name, ())]
        new = {id(pkgutil.resolve_name(n)): n for n in reversed(names)}
        new = {key: n for key, n in new.items() if key not in seen}
        seen |= set(new)
        about = (inspect.getdoc(module) or "").partition("\n\n")[0]
        more = TEXT["more"].get(name, "")
        yield f"{name}.md", _page(f"rood.{name}", f"{about} {more}".strip(), [*new.values()][::-1])


def _names(module: ModuleType) -> Iterator[str]:
    """What a module and those in it offer: in `__all__`, or with an example in the docstring."""
    offered = getattr(module, "__all__", None)
    for name in offered or list(vars(module)):
        value = getattr(module, name, None)
        if not getattr(value, "__module__", "").startswith(module.__name__.partition(".")[0]):
            continue
        home = value.__module__ if offered is None else module.__name__
        if home == module.__name__ and (offered or ">>>" in (inspect.getdoc(value) or "")):
            yield from [f"{module.__name__}.{name}"] * callable(value)
    for found in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if found.name[0] != "_" and not hasattr(module, "registry"):
            yield from _names(import_module(f"{module.__name__}.{found.name}"))


def _page(title: str, about: str, names: list[str]) -> str:
    lines = [f"# {title}", "", about, "", "```{eval-rst}"]
    for name in names:
        kind = "class" if inspect.isclass(pkgutil.resolve_name(name)) else "function"
        lines += [f".. auto{kind}:: {name}", *["   :members:"] * (kind == "class"), ""]
    return "\n".join([*lines[:-1], "```", ""])
