"""The page of a stream: its evidence image by image, with the line at which an alarm is raised."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rood._files import write_whole
from rood.evaluation.store import readable_errors
from rood.report.figures.base import GRID, Drawing, Figure, trace
from rood.report.templating import asset, embedded, environment, policy
from rood.report.words import count, number, percent, shown

POINTS = 2000  # of the line: of a longer stream the highest of every few images, and every alarm
MOST_ALARMS = 200  # in plot and table: the first ones


@dataclass
class Stream:
    """What a page says of a stream, kept while it runs: memory does not grow with its length."""

    arl: float  # the evidence at which an alarm is raised
    images: int = 0
    rejected: int = 0
    raised: int = 0  # alarms; the first of them:
    alarms: list[tuple[int, str, float]] = field(default_factory=list)  # image, file, evidence
    highest: list[tuple[int, float]] = field(default_factory=list)  # image, evidence
    every: int = 1  # images that a point stands for

    def add(self, reading: Mapping[str, Any]) -> None:
        """One image, as `rood watch --json` prints it."""
        at, evidence = int(reading["number"]), float(reading["evidence"])
        self.images, self.rejected = at, self.rejected + (not reading["accept"])
        self.raised += bool(reading["alarm"])
        if reading["alarm"] and len(self.alarms) < MOST_ALARMS:
            self.alarms.append((at, str(reading["file"]), evidence))
        if self.highest and (at - 1) // self.every == (self.highest[-1][0] - 1) // self.every:
            self.highest[-1] = max(self.highest[-1], (at, evidence), key=lambda point: point[1])
        else:
            self.highest.append((at, evidence))
        if len(self.highest) > POINTS:
            self.every *= 2
            pairs = zip(self.highest[::2], [*self.highest[1::2], None], strict=False)
            self.highest = [max(filter(None, p), key=lambda point: point[1]) for p in pairs]

    def render(self) -> str:
        """The page as one string."""
        drawn = figure(self)
        scripts = {"plotly_js": get_plotlyjs(), "page_js": asset("rood.report", "page.js")}
        filters: dict[str, Callable[..., Any]] = {
            "shown": shown,
            "number": number,
            "percent": percent,
            "count": count,
        }
        return (
            environment("rood.report", filters)
            .get_template("stream.html.j2")
            .render(
                stream=self,
                bound=min(1.0, self.images / self.arl),
                figure=drawn,
                figures_json=Markup(embedded({drawn.id: drawn.compact()})),
                page_css=Markup(asset("rood.report", "page.css")),
                policy=policy(scripts.values()),
                **{name: Markup(text) for name, text in scripts.items()},
            )
        )

    def write(self, path: Path) -> None:
        """Write the page: one file that loads nothing from elsewhere."""
        with readable_errors(path):
            write_whole(path, self.render().encode())


def figure(stream: Stream) -> Figure:
    """Evidence against the number of the image, on a logarithmic axis."""
    few = f" Each point is the highest of {stream.every} images." if stream.every > 1 else ""
    return Figure(
        "stream",
        menu="Stream",
        title="Evidence that the stream has left the calibration images",
        note="While images are in-distribution the evidence grows by 1 an image on average and "
        f"rarely reaches the line; after an alarm it starts again.{few}",
        axes={},
        draw=lambda: _draw(stream),
        layout={
            "height": 380,
            "xaxis": {**GRID, "title": {"text": "image"}},
            "yaxis": {**GRID, "type": "log", "title": {"text": "evidence"}, "exponentformat": "e"},
        },
    )


def _draw(stream: Stream) -> Drawing:
    x, y = [p[0] for p in stream.highest], [float(f"{p[1]:.5g}") for p in stream.highest]
    lines = [
        trace(
            x=x,
            y=y,
            name="evidence",
            mode="lines" if len(x) > 1 else "markers",
            line={"color": "var(--line-0)", "width": 1.5},
            hovertemplate="image %{x}: %{y:.3g}<extra></extra>",
        ),
        trace(
            x=[1, max(2, stream.images)],
            y=[stream.arl, stream.arl],
            name=f"alarm at {stream.arl:g}",
            mode="lines",
            line={"color": "var(--ink)", "width": 1.2, "dash": "dot"},
            hoverinfo="skip",
        ),
    ]
    if stream.alarms:
        lines.append(
            trace(
                x=[at for at, _, _ in stream.alarms],
                y=[float(f"{value:.5g}") for _, _, value in stream.alarms],
                name="alarm",
                mode="markers",
                marker={"symbol": "x", "size": 9, "color": "var(--line-1)"},
                hovertemplate="alarm at image %{x}<extra></extra>",
            )
        )
    most = max(stream.highest, key=lambda point: point[1], default=(0, 0.0))
    said = f"{count(stream.images, 'image')}, {count(stream.raised, 'alarm')}; the evidence "
    said += (
        f"is highest at image {most[0]}, {most[1]:.3g}, and an alarm is raised at {stream.arl:g}."
    )
    return {"data": lines, "layout": {}, "summary": said}
