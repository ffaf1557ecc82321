"""The page of `rood diff`: one table that opens offline."""

from markupsafe import Markup

from rood.receipts.difference import Difference
from rood.report.templating import asset, environment, policy
from rood.report.words import shown


def render(found: Difference) -> str:
    """The page as one string."""
    template = environment("rood.receipts", {"shown": shown}).get_template("difference.html.j2")
    css = Markup(asset("rood.receipts", "difference.css"))
    return template.render(found=found, css=css, policy=policy([]))
