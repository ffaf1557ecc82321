"""The paper that a docstring names."""

import inspect
import re

PATTERN = re.compile(r"arXiv:\d{4}\.\d{4,5}|(?:doi|openreview|thecvf):[^\s,;)]+[^\s,;).]")


def paper(thing: object) -> str:
    """The first source in a docstring, such as "arXiv:1610.02136"; empty where there is none."""
    found = PATTERN.search(inspect.getdoc(thing) or "")
    return found.group() if found else ""
