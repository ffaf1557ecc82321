"""How Sphinx builds the site: `make docs`, from these Markdown pages into build/site."""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

from rood import __version__

ROOT = Path(__file__).resolve().parent.parent
# pages beside the code that the site shows too, by the page that stands in for each
SHOWN = {
    "project/changelog": "CHANGELOG.md",
    "project/contributing": "CONTRIBUTING.md",
    "project/papers": "papers/README.md",
    "project/security": "SECURITY.md",
    "project/zoo": "zoo/README.md",
    "index": "README.md",
}

project = "rood"
author = "The rood developers"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["results"]
html_theme = "pydata_sphinx_theme"
html_title = "rood"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["sphinx-version"],
    "footer_end": [],
}

# tutorials are notebooks in Markdown: run when the site is built, an error stops the build
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for !rood
os.environ["TTY_COMPATIBLE"] = "0"  # a kernel says that it is a terminal: no moving progress
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# every link leads somewhere; the types of a signature need no page of their own
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]
default_role = "code"
autodoc_member_order = "bysource"
napoleon_google_docstring = False


def show_files_of_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill in the pages of SHOWN; links to such a file lead to its page."""
    origin = ROOT / SHOWN[page] if page in SHOWN and page != "index" else Path(app.srcdir, page)
    if origin.suffix:
        source[0] = origin.read_text(encoding="utf-8")
    pages = {ROOT / file: page for page, file in SHOWN.items()}

    def led(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(origin.parent / link[1]))
        if target in pages:
            target = Path(app.srcdir, f"{pages[target]}.md")
        elif target.is_dir():
            target /= "index.md"
        where = os.path.relpath(target, Path(app.srcdir, page).parent)
        return f"]({where}{link[2] or ''})"

    source[0] = re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", led, source[0])


def plain_bars(app: Sphinx, *about: object) -> None:
    """In a docstring |v| is a length: Sphinx would look for a substitution called v."""
    lines = about[-1]
    lines[:] = [
        x if x.lstrip().startswith((">>>", "...")) else x.replace("|", r"\|") for x in lines
    ]


def setup(app: Sphinx) -> None:
    """Connect what is ours."""
    app.connect("source-read", show_files_of_the_repository)
    app.connect("autodoc-process-docstring", plain_bars)
